package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"

	"admission-gateway.io/worker"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"
)

func init() { ctrllog.SetLogger(logr.Discard()) }

// parse returns the documents of YAML, separated by lines of ---.
func parse(t testing.TB, texts ...string) []document {
	t.Helper()
	var found []document
	for index, text := range texts {
		for at, part := range strings.Split(text, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(part), &object.Object); err != nil {
				t.Fatalf("%v in %s", err, part)
			}
			found = append(found, document{Unstructured: object, Place: fmt.Sprintf("%d.yaml:%d", index, at+1)})
		}
	}
	return found
}

// rego returns a template whose Rego has the rules.
func regoTemplate(kind, rules string) string {
	return fmt.Sprintf(`
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata:
  name: %s
  annotations: {description: What it is for.}
spec:
  crd:
    spec:
      names: {kind: %s}
      validation:
        openAPIV3Schema:
          type: object
          properties:
            label: {type: string, default: team}
            count: {type: integer}
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        package policy
        %s
`, strings.ToLower(kind), kind, strings.ReplaceAll(rules, "\n", "\n        "))
}

// needsLabel demands a label of the object.
var needsLabel = regoTemplate("NeedsLabel", `violation[{"msg": msg}] {
  not input.review.object.metadata.labels[input.parameters.label]
  msg := sprintf("%v has no label %v", [input.review.object.metadata.name, input.parameters.label])
}`)

// constraintText returns a constraint with fields of its spec.
func constraintText(kind, name, spec string) string {
	return fmt.Sprintf(`
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: %s
metadata: {name: %s}
spec: %s
`, kind, name, spec)
}

func quietEngine() *engine { return newEngine(worker.NewServer(), log.New(io.Discard, "", 0)) }

// stateOf returns the state of documents without problems.
func stateOf(t testing.TB, texts ...string) *state {
	t.Helper()
	made, problems := quietEngine().stateOf(parse(t, texts...))
	if len(problems) > 0 {
		t.Fatal(errors.Join(problems...))
	}
	return made
}

const pod = `{"uid": "1", "operation": "CREATE", "kind": {"version": "v1", "kind": "Pod"},
	"resource": {"version": "v1", "resource": "pods"}, "namespace": "shop", "name": "web",
	"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}}`

const shop = `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "prod"}}}`

// call calls a policy of the state, by its name, as the SDK does.
func call(t testing.TB, s *state, name, request, parameters string) (*worker.Review, error) {
	t.Helper()
	for index := range s.constraints {
		each := &s.constraints[index]
		if each.name != name {
			continue
		}
		prepared, err := each.prepare([]byte(parameters))
		if err != nil {
			return nil, err
		}
		review := parseReview(t, request, worker.WithPrepared(prepared))
		return review, s.policy(*each)(t.Context(), review)
	}
	if name != "validation" {
		t.Fatalf("there is no policy %s", name)
	}
	review := parseReview(t, request)
	return review, s.reviewAll(t.Context(), review)
}

func parseReview(t testing.TB, request string, options ...worker.ReviewOption) *worker.Review {
	t.Helper()
	review, err := worker.ParseReview([]byte(request), append(options, worker.WithNamespaceObject([]byte(shop)))...)
	if err != nil {
		t.Fatal(err)
	}
	return review
}

// denied checks that the error is a denial with the message.
func denied(t testing.TB, err error, code int, message string) {
	t.Helper()
	var denial *worker.Denial
	if !errors.As(err, &denial) {
		t.Fatalf("got %v, expected a denial", err)
	}
	if denial.Code != code || denial.Message != message {
		t.Errorf("got %d %q, expected %d %q", denial.Code, denial.Message, code, message)
	}
}

func TestAConstraintDenies(t *testing.T) {
	s := stateOf(t, needsLabel, constraintText("NeedsLabel", "owners", "{parameters: {}}"))
	_, err := call(t, s, "NeedsLabel/owners", pod, "{}")
	denied(t, err, 403, "[owners] web has no label team")
}

func TestAConstraintAllows(t *testing.T) {
	s := stateOf(t, needsLabel, constraintText("NeedsLabel", "owners", "{parameters: {}}"))
	labelled := strings.Replace(pod, `"name": "web", "namespace"`, `"name": "web", "labels": {"team": "a"}, "namespace"`, 1)
	if _, err := call(t, s, "NeedsLabel/owners", labelled, "{}"); err != nil {
		t.Error(err)
	}
}
