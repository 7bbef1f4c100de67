package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"admission-gateway.io/worker"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sampled is a folder of the library: its mutators, and the objects that show what they do.
type sampled struct {
	name              string
	mutators, objects []document
}

// samplesOf reads the folders `samples` below a folder.
func samplesOf(t testing.TB, root string) []sampled {
	t.Helper()
	var found []sampled
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || entry.Name() != "samples" {
			return err
		}
		made := sampled{name: strings.TrimPrefix(path, root)}
		err = filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, object := range documentsOf(t, string(text)) {
				if object.GroupVersionKind().Group == mutationsGroup {
					made.mutators = append(made.mutators, object)
				} else {
					made.objects = append(made.objects, object)
				}
			}
			return nil
		})
		found = append(found, made)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Each mutator of the library, and all mutators of a folder together, answer over gRPC as the engine, for the objects
// of the library that show what they do.
func TestMutatorsOfTheLibraryAnswerOverGRPCAsTheEngine(t *testing.T) {
	root := os.Getenv("POLICY_CORPORA")
	if root == "" {
		t.Skip("POLICY_CORPORA names no folder of public policies")
	}
	compared, changed := 0, 0
	var all sampled
	for _, sample := range samplesOf(t, filepath.Join(root, "gatekeeper-library", "mutation")) {
		all.mutators, all.objects = append(all.mutators, sample.mutators...), append(all.objects, sample.objects...)
		t.Run(sample.name, func(t *testing.T) {
			sets := [][]document{sample.mutators}
			for _, mutator := range sample.mutators {
				sets = append(sets, []document{mutator})
			}
			for _, set := range sets {
				compared += len(sample.objects)
				changed += compareWithEngine(t, set, sample.objects)
			}
		})
	}
	compared += len(all.objects)
	changed += compareWithEngine(t, all.mutators, all.objects)
	if t.Logf("%d answers compared, %d of them change the object", compared, changed); compared == 0 || changed == 0 {
		t.Error("nothing was compared")
	}
}

// compareWithEngine returns how many objects the mutators change.
func compareWithEngine(t *testing.T, mutators, objects []document) (changed int) {
	t.Helper()
	caller, engine := serve(t, mutators), engineOf(t, mutators, nil)
	namespace := `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "front"}}}`
	for _, object := range objects {
		request := creationOf(object.Unstructured)
		request.Namespace = "shop"
		answer := caller.review("mutation", request, namespace)
		want, err := engineObject(t, engine, request)
		if err != nil {
			t.Fatal(err)
		}
		found := caller.after(request, answer)
		if !answer.Allowed || !same(t, found, want) {
			t.Errorf("%s: got %v, expected %v", object.GetName(), found, want)
		}
		if !same(t, found, request.Object) {
			changed++
		}
	}
	return changed
}

// Each constraint of the library denies a Deployment of the Pods beside it as Gatekeeper itself does: with its own client,
// expansion and mutation.
func TestConstraintsOfTheLibraryDenyDeploymentsAsGatekeeperItself(t *testing.T) {
	root := os.Getenv("POLICY_CORPORA")
	if root == "" {
		t.Skip("POLICY_CORPORA names no folder of public policies")
	}
	templates, err := filepath.Glob(filepath.Join(root, "gatekeeper-library", "library", "*", "*", "template.yaml"))
	if err != nil || len(templates) == 0 {
		t.Fatal(templates, err)
	}
	compared, lines := 0, 0
	for _, template := range templates {
		t.Run(filepath.Base(filepath.Dir(template)), func(t *testing.T) {
			samples, err := filepath.Glob(filepath.Join(filepath.Dir(template), "samples", "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, sample := range samples {
				constraints := documentsIn(t, filepath.Join(sample, "constraint.yaml"))
				if len(constraints) == 0 {
					continue
				}
				constraints = append(documentsIn(t, template), constraints...)
				generators := documentsOf(t, podsOfDeployments)
				theirs := implied{oracle{newOracleClient(t, constraints)}, newImplied(t, nil, generators).expansion}
				ours, problems := newEngine(worker.NewServer(), logTo(io.Discard)).stateOf(append(generators, constraints...))
				if len(problems) > 0 {
					t.Fatal(problems)
				}
				for _, request := range deploymentsOf(t, sample) {
					denials, warnings := theirs.answer(t, request, nil)
					review, err := worker.ParseReview([]byte(request))
					if err != nil {
						t.Fatal(err)
					}
					// Messages may have several lines.
					found, want := denialLines(t, ours.reviewAll(t.Context(), review)), strings.Split(strings.Join(denials, "\n"), "\n")
					if len(denials) == 0 {
						want = nil
					}
					slices.Sort(found)
					if slices.Sort(want); !slices.Equal(found, want) || len(warnings) != len(review.Warnings()) {
						t.Errorf("%s: got %q, expected %q", sample, found, denials)
					}
					compared++
					lines += len(denials)
				}
			}
		})
	}
	if t.Logf("%d Deployments compared, with %d lines", compared, lines); compared == 0 || lines == 0 {
		t.Error("nothing was compared")
	}
}

// documentsIn reads a file, which need not exist.
func documentsIn(t testing.TB, path string) []document {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return documentsOf(t, string(text))
}

// deploymentsOf returns the requests that create a Deployment of each Pod in a folder.
func deploymentsOf(t testing.TB, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var requests []string
	for _, path := range paths {
		for _, pod := range documentsIn(t, path) {
			if pod.GetKind() != "Pod" || pod.GetAPIVersion() != "v1" {
				continue
			}
			template := map[string]any{"metadata": pod.Object["metadata"], "spec": pod.Object["spec"]}
			made := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": pod.GetName()},
				"spec": map[string]any{"template": template},
			}}
			request := creationOf(made)
			request.UserInfo["username"] = "jane"
			requests = append(requests, string(marshalled(t, request)))
		}
	}
	return requests
}
