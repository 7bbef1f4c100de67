package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
