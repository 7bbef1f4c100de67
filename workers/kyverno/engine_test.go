package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strings"
	"testing"

	documents "admission-gateway.io/engines"
	"admission-gateway.io/worker"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	silenceLibraries()
	os.Exit(m.Run())
}

// pod is a request to create a Pod with these metadata and spec.
func pod(metadata, spec string) string {
	return `{"uid": "1", "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
		"resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop", "name": "web",
		"userInfo": {"username": "ann", "groups": ["dev"]},
		"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"` + metadata + `}, "spec": ` + spec + `}}`
}

// deployment is a request to create a Deployment with this spec of its Pods.
func deployment(spec string) string {
	return `{"uid": "1", "operation": "CREATE", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
		"resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "namespace": "shop", "name": "web",
		"object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
		"spec": {"template": {"metadata": {}, "spec": ` + spec + `}}}}`
}

// rules is a ClusterPolicy with these rules, which match Pods, and these lines of its spec.
func rules(name, spec string, texts ...string) string {
	text := "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: " + name + "}\nspec:\n  " + spec + "\n  rules:\n"
	for _, each := range texts {
		text += "  - match: {any: [{resources: {kinds: [Pod]}}]}\n    " + strings.ReplaceAll(strings.TrimSpace(each), "\n", "\n    ") + "\n"
	}
	return text
}

func objectsOf(t testing.TB, texts ...string) (found []documents.Object) {
	t.Helper()
	for _, text := range texts {
		for _, each := range strings.Split(text, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(each), &object.Object); err != nil {
				t.Fatalf("%v in\n%s", err, each)
			}
			asJSON, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if err := object.UnmarshalJSON(asJSON); err != nil {
				t.Fatal(err)
			}
			found = append(found, documents.Object{Unstructured: object, Place: "text"})
		}
	}
	return found
}

// stateOf returns the state of documents, and what is said of them.
func stateOf(t testing.TB, texts ...string) (*state, []string) {
	t.Helper()
	return newProgram(worker.NewServer(), log.New(io.Discard, "", 0)).stateOf(objectsOf(t, texts...))
}

// answered is what a call answers.
type answered struct {
	err      error
	message  string
	code     int
	warnings []string
	noted    string
	patch    string
}

// called calls a policy, with the action of the parameters.
func (s *state) called(t testing.TB, policy, request, action string, options ...worker.ReviewOption) (got answered) {
	t.Helper()
	function := map[string]worker.PolicyFunc{"validation": s.validateAll, "mutation": s.mutateAll}[policy]
	for index := range s.served {
		if one := &s.served[index]; one.name == policy {
			function = s.validate(one)
			if one.mutating {
				function = s.mutate(one)
			}
		}
	}
	if function == nil {
		t.Fatalf("policy %s is not served", policy)
	}
	options = append(options, worker.WithPrepared(action))
	review, err := worker.ParseReview([]byte(request), options...)
	if err != nil {
		t.Fatal(err)
	}
	err = function(t.Context(), review)
	var denial *worker.Denial
	if errors.As(err, &denial) {
		got.message, got.code = denial.Message, denial.Code
	} else {
		got.err = err
	}
	got.warnings, got.noted = review.Warnings(), review.Annotations()[annotation]
	if operations, err := review.Changes(); err != nil {
		t.Fatal(err)
	} else if len(operations) > 0 {
		text, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		got.patch = string(text)
	}
	return got
}
