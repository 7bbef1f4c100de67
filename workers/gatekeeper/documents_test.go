package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"reflect"
	"strings"
	"testing"
	"time"

	"admission-gateway.io/worker"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// documentsOf reads YAML documents, whose places are text:1, text:2 and so on.
func documentsOf(t testing.TB, text string) []document {
	t.Helper()
	var read []document
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(object); {
		case errors.Is(err, io.EOF):
			return read
		case err != nil:
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			read = append(read, document{Unstructured: object, Place: fmt.Sprintf("text:%d", len(read)+1)})
		}
	}
}

// created is the AdmissionRequest of a CREATE by alice.
type created struct {
	Operation string            `json:"operation"`
	Kind      map[string]string `json:"kind"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name,omitempty"`
	UserInfo  map[string]string `json:"userInfo"`
	Object    any               `json:"object,omitempty"`
	OldObject any               `json:"oldObject,omitempty"`
}

// creation returns the request that creates an object given as YAML.
func creation(t testing.TB, text string) created {
	t.Helper()
	object := documentsOf(t, text)[0]
	return creationOf(object.Unstructured)
}

func creationOf(object *unstructured.Unstructured) created {
	kind := object.GroupVersionKind()
	return created{
		Operation: "CREATE", Kind: map[string]string{"group": kind.Group, "version": kind.Version, "kind": kind.Kind},
		Namespace: object.GetNamespace(), Name: object.GetName(), UserInfo: map[string]string{"username": "alice"},
		Object: object.Object,
	}
}

// review returns the review of the request, in a Namespace given as YAML; empty: unknown.
func (c created) review(t testing.TB, namespace string) *worker.Review {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var options []worker.ReviewOption
	if namespace != "" {
		object, err := yaml.ToJSON([]byte(namespace))
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, worker.WithNamespaceObject(object))
	}
	review, err := worker.ParseReview(text, options...)
	if err != nil {
		t.Fatal(err)
	}
	return review
}

// patched returns the object of the request with the patch of the review.
func patched(t testing.TB, request created, review *worker.Review) map[string]any {
	t.Helper()
	operations, err := review.Changes()
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(request.Object)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(patchOf(operations))
	if err != nil {
		t.Fatal(err)
	}
	return applied(t, before, text)
}

// patchOf returns the operations as those of a JSON patch.
func patchOf(operations []worker.Operation) []map[string]any {
	patch := []map[string]any{}
	for _, operation := range operations {
		patch = append(patch, map[string]any{"op": operation.Op, "path": operation.Path, "value": operation.Value})
	}
	return patch
}

// applied returns a JSON object after a JSON patch.
func applied(t testing.TB, before, patch []byte) map[string]any {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := decoded.Apply(before)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	return objectOf(t, after)
}

func objectOf(t testing.TB, text []byte) map[string]any {
	t.Helper()
	object := make(map[string]any)
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// same reports whether two values have the same JSON.
func same(t testing.TB, one, other any) bool {
	t.Helper()
	var values [2]any
	for index, value := range []any{one, other} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&values[index]); err != nil {
			t.Fatal(err)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// denialOf returns the denial of a policy.
func denialOf(t testing.TB, err error) *worker.Denial {
	t.Helper()
	var denial *worker.Denial
	if !errors.As(err, &denial) {
		t.Fatalf("got %v, expected a denial", err)
	}
	return denial
}

// texts returns the messages of errors.
func texts(problems []error) []string {
	found := make([]string, len(problems))
	for index, problem := range problems {
		found[index] = problem.Error()
	}
	return found
}

// noConfig excludes no namespace.
func noConfig() *process.Excluder { return process.New() }

func logTo(text io.Writer) *log.Logger { return log.New(text, "", 0) }

func contextWithTimeout(t testing.TB, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), timeout)
}
