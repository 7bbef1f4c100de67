package prepared

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego/schema"
	"github.com/open-policy-agent/opa/v1/storage"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The templates of Gatekeeper's library have the same results for all objects beside them. POLICY_CORPORA is the folder
// with the policies of others.
func TestTheLibraryHasTheResultsOfTheFrameworks(t *testing.T) {
	corpora := os.Getenv("POLICY_CORPORA")
	if corpora == "" {
		t.Skip("POLICY_CORPORA is not set")
	}
	found, err := filepath.Glob(filepath.Join(corpora, "gatekeeper-library", "library", "*", "*", "template.yaml"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	violations := 0
	for _, file := range found {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			both := newBoth(t)
			object := documents(t, file)[0]
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "crd", "spec", "names", "kind")
			if both.addTemplate(kind, source(t, object)) {
				t.Fatal("it is refused")
			}
			asked, objects := beside(t, filepath.Dir(file), kind)
			for _, each := range asked {
				both.add(each)
			}
			for _, each := range objects {
				path := storage.Path{"cluster", each.GetAPIVersion(), each.GetKind(), each.GetName()}
				if namespace := each.GetNamespace(); namespace != "" {
					path = append(storage.Path{"namespace", namespace}, path[1:]...)
				}
				both.set(path, each.Object)
			}
			for _, each := range objects {
				violations += len(both.compare(review(each), nil, asked...))
			}
		})
	}
	if violations < 100 {
		t.Error(violations, "violations")
	}
}

// beside returns the constraints of a kind, and all other objects, in the files of a folder and below.
func beside(t *testing.T, folder, kind string) (asked, objects []*unstructured.Unstructured) {
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(path, filepath.Join(folder, "samples")) || filepath.Ext(path) != ".yaml" {
			return err
		}
		for _, each := range documents(t, path) {
			if each.GetKind() == kind {
				each.SetName(filepath.Base(filepath.Dir(path)))
				asked = append(asked, each)
			} else {
				objects = append(objects, each)
			}
		}
		return nil
	})
	if err != nil || len(asked) == 0 || len(objects) == 0 {
		t.Fatal(asked, objects, err)
	}
	return asked, objects
}

func review(object *unstructured.Unstructured) any {
	if request, ok := object.Object["request"]; ok {
		return request
	}
	kind := object.GroupVersionKind()
	return map[string]any{
		"object": object.Object, "operation": "CREATE", "namespace": object.GetNamespace(), "name": object.GetName(),
		"kind": map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind},
	}
}

func source(t *testing.T, object *unstructured.Unstructured) schema.Source {
	targets, _, _ := unstructured.NestedSlice(object.Object, "spec", "targets")
	of := targets[0].(map[string]any)
	codes, _, _ := unstructured.NestedSlice(of, "code")
	for _, each := range codes {
		if code := each.(map[string]any); code["engine"] == schema.Name {
			of = code["source"].(map[string]any)
		}
	}
	var found schema.Source
	found.Rego, _, _ = unstructured.NestedString(of, "rego")
	found.Version, _, _ = unstructured.NestedString(of, "version")
	found.Libs, _, _ = unstructured.NestedStringSlice(of, "libs")
	if found.Rego == "" {
		t.Fatal("it has no Rego")
	}
	return found
}

func documents(t *testing.T, path string) []*unstructured.Unstructured {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(path, err)
		}
		if object.Object != nil {
			found = append(found, object)
		}
	}
}
