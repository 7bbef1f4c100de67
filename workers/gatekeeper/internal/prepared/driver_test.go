package prepared

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego/schema"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	"github.com/open-policy-agent/frameworks/constraint/pkg/types"
	"github.com/open-policy-agent/opa/v1/storage"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const target = "admission.k8s.gatekeeper.sh"

// sources are templates by the kind of their constraints.
var sources = map[string]schema.Source{
	"Labels": {Rego: `package labels
violation[{"msg": msg, "details": {"missing": missing}}] {
  missing := {name | name := input.parameters.labels[_]} - {name | input.review.object.metadata.labels[name]}
  count(missing) > 0
  msg := sprintf("missing labels: %v", [missing])
}`},
	"Replicas": {Version: "v1", Rego: `package replicas
import data.lib.bounds
violation contains {"msg": msg} if {
  not bounds.within(input.review.object.spec.replicas, input.parameters)
  msg := sprintf("%v replicas in %v", [input.review.object.spec.replicas, input.review.namespaceObject.metadata.name])
}`, Libs: []string{`package lib.bounds
within(number, limits) if { number >= limits.least; number <= limits.most }`}},
	"Unique": {Rego: `package unique
violation[{"msg": msg}] {
  other := data.inventory.namespace[namespace][_]["Service"][name]
  other.spec.selector == input.review.object.spec.selector
  msg := sprintf("the Service %v/%v has the selector", [namespace, name])
}
violation[{"msg": msg}] {
  data.inventory.cluster["v1"]["Namespace"][name].metadata.labels.frozen == "true"
  name == input.review.namespace
  msg := "the namespace is frozen"
}`},
	"Conflict": {Rego: `package conflict
pick = value { value := input.review.object.metadata.labels[_] }
violation[{"msg": msg}] { msg := sprintf("%v", [pick]) }`},
	"NoText": {Rego: `package notext
violation[{"msg": input.review.object.metadata.name, "details": input.parameters}] { true }
violation[{"msg": 1}] { input.review.operation == "DELETE" }`},
}

func template(kind string, source schema.Source) *templates.ConstraintTemplate {
	made := &templates.ConstraintTemplate{}
	made.Spec.CRD.Spec.Names.Kind = kind
	code := templates.Code{Engine: schema.Name, Source: &templates.Anything{Value: source.ToUnstructured()}}
	made.Spec.Targets = []templates.Target{{Target: target, Code: []templates.Code{code}}}
	return made
}

func constraint(kind, name string, parameters map[string]any) *unstructured.Unstructured {
	spec := map[string]any{}
	if parameters != nil {
		spec["parameters"] = parameters
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// both has the driver of the frameworks beside those that are tested, one for each template.
type both struct {
	t       testing.TB
	tested  map[string]*Driver
	witness *rego.Driver
	tree    map[string]any
	// known is nil after a change of the tree.
	known *Inventory
}

func newBoth(t testing.TB) *both {
	witness, err := rego.New(rego.DisableBuiltins("http.send"))
	if err != nil {
		t.Fatal(err)
	}
	return &both{t: t, tested: make(map[string]*Driver), witness: witness, tree: map[string]any{}}
}

// agree returns whether both have an error, which they have to agree on.
func (b *both) agree(what string, tested, witness error) (failed bool) {
	b.t.Helper()
	if (tested == nil) != (witness == nil) {
		b.t.Fatalf("%s: found %v, expected %v", what, tested, witness)
	}
	return tested != nil
}

// addTemplate returns whether the template is refused.
func (b *both) addTemplate(kind string, source schema.Source) (failed bool) {
	b.t.Helper()
	b.tested[kind] = New(Capabilities("http.send"))
	made := template(kind, source)
	return b.agree(kind, b.tested[kind].AddTemplate(b.t.Context(), made), b.witness.AddTemplate(b.t.Context(), made))
}

func (b *both) addTemplates() {
	for kind, source := range sources {
		if b.addTemplate(kind, source) {
			b.t.Fatal(kind, "is refused")
		}
	}
}

func (b *both) add(asked *unstructured.Unstructured) {
	b.t.Helper()
	if err := b.witness.AddConstraint(b.t.Context(), asked); err != nil {
		b.t.Fatal(err)
	}
}

// set sets an object of the inventory, and removes it if it is nil.
func (b *both) set(path storage.Path, object map[string]any) {
	b.t.Helper()
	within := b.tree
	for _, key := range path[:len(path)-1] {
		next, ok := within[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			within[key] = next
		}
		within = next
	}
	b.known = nil
	if object == nil {
		delete(within, path[len(path)-1])
		if err := b.witness.RemoveData(b.t.Context(), target, path); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	value, err := NewValue(object)
	if err != nil {
		b.t.Fatal(err)
	}
	within[path[len(path)-1]] = value
	if err := b.witness.AddData(b.t.Context(), target, path, object); err != nil {
		b.t.Fatal(err)
	}
}

// inventory returns that of the tested drivers.
func (b *both) inventory() *Inventory {
	if b.known == nil {
		b.known = NewInventory(b.tree)
	}
	return b.known
}

// evaluate returns the results of the tested drivers.
func (b *both) evaluate(
	ctx context.Context, review any, namespace map[string]any, asked ...*unstructured.Unstructured,
) (results []*types.Result, err error) {
	b.t.Helper()
	text, err := json.Marshal(review)
	if err != nil {
		b.t.Fatal(err)
	}
	input, err := NewInput(text, namespace)
	if err != nil {
		b.t.Fatal(err)
	}
	byKind := make(map[string][]Asked)
	for _, each := range asked {
		of, _, _ := unstructured.NestedFieldNoCopy(each.Object, "spec", "parameters")
		parameters, err := NewParameters(of)
		if err != nil {
			b.t.Fatal(err)
		}
		byKind[each.GetKind()] = append(byKind[each.GetKind()], Asked{each, parameters})
	}
	for kind, each := range byKind {
		found, err := b.tested[kind].Evaluate(ctx, target, each, input, b.inventory())
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	return results, nil
}

// compare compares the results of constraints for a review, and returns them.
func (b *both) compare(review any, namespace map[string]any, asked ...*unstructured.Unstructured) []string {
	b.t.Helper()
	tested, err := b.evaluate(b.t.Context(), review, namespace, asked...)
	witness, expected := b.witness.Query(b.t.Context(), target, asked, review, reviews.Namespace(namespace))
	if b.agree("query", err, expected) {
		return nil
	}
	found, wanted := linesOf(tested), linesOf(witness.Results)
	if !slices.Equal(found, wanted) {
		b.t.Errorf("found\n%s\nexpected\n%s", strings.Join(found, "\n"), strings.Join(wanted, "\n"))
	}
	return found
}

func linesOf(results []*types.Result) []string {
	var lines []string
	for _, result := range results {
		lines = append(lines, fmt.Sprintf("%s/%s: %s", result.Constraint.GetKind(), result.Constraint.GetName(), result.Msg))
	}
	slices.Sort(lines)
	return lines
}

func drawnValue(random *rand.Rand, depth int) any {
	switch random.IntN(7 - min(depth, 2)) {
	case 0:
		return random.Float64() * 1e6
	case 1:
		return int64(random.Uint64() >> 1)
	case 2:
		return nil
	case 3, 4:
		return string("abc"[random.IntN(3)])
	case 5:
		return []any{drawnValue(random, depth+1), drawnValue(random, depth+1)}
	default:
		return map[string]any{"a": drawnValue(random, depth+1), "b": drawnValue(random, depth+1)}
	}
}

func drawnReview(random *rand.Rand) map[string]any {
	labels := map[string]any{}
	for range random.IntN(4) {
		labels[string("abc"[random.IntN(3)])] = string("xyz"[random.IntN(3)])
	}
	object := map[string]any{
		"metadata": map[string]any{"name": "n", "labels": labels, "annotations": drawnValue(random, 0)},
		"spec":     map[string]any{"replicas": drawnValue(random, 1), "selector": map[string]any{"app": drawnValue(random, 2)}},
	}
	operation := []string{"CREATE", "UPDATE", "DELETE"}[random.IntN(3)]
	return map[string]any{"object": object, "operation": operation, "namespace": string("ab"[random.IntN(2)])}
}

// Any review, parameters and inventory have the results of the frameworks.
func TestResultsAreThoseOfTheFrameworks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	both := newBoth(t)
	both.addTemplates()
	asked := []*unstructured.Unstructured{
		constraint("Labels", "one", map[string]any{"labels": []any{"a", "b"}}),
		constraint("Labels", "two", map[string]any{"labels": []any{"c"}}),
		constraint("Labels", "none", nil),
		constraint("Replicas", "few", map[string]any{"least": int64(1), "most": 100.5}),
		constraint("Unique", "selectors", nil),
		constraint("Conflict", "labels", nil),
		constraint("NoText", "name", map[string]any{"a": map[string]any{"b": []any{"c", 1.5}}}),
	}
	for _, each := range asked {
		both.add(each)
	}
	for range 500 {
		if random.IntN(3) == 0 {
			both.change(random)
		}
		chosen := asked[:1+random.IntN(len(asked))]
		namespace := map[string]any{"metadata": map[string]any{"name": "a"}}
		if random.IntN(3) == 0 {
			namespace = nil
		}
		both.compare(drawnReview(random), namespace, chosen...)
	}
}

// change sets or removes an object of the inventory.
func (b *both) change(random *rand.Rand) {
	path := storage.Path{"namespace", string("ab"[random.IntN(2)]), "v1", "Service", string("xyz"[random.IntN(3)])}
	object := map[string]any{"spec": map[string]any{"selector": map[string]any{"app": drawnValue(random, 2)}}}
	if random.IntN(3) == 0 {
		path = storage.Path{"cluster", "v1", "Namespace", string("ab"[random.IntN(2)])}
		frozen := []string{"true", "false"}[random.IntN(2)]
		object = map[string]any{"metadata": map[string]any{"labels": map[string]any{"frozen": frozen}}}
	}
	if random.IntN(4) == 0 {
		object = nil
	}
	b.set(path, object)
}

func TestTemplatesThatTheFrameworksRefuseAreRefused(t *testing.T) {
	both := newBoth(t)
	for name, source := range map[string]schema.Source{
		"no rule":       {Rego: "package a\nother { true }"},
		"empty":         {Rego: ""},
		"comment":       {Rego: "# nothing"},
		"no Rego":       {Rego: "package a\nviolation[{"},
		"other data":    {Rego: "package a\nviolation[{\"msg\": \"x\"}] { data.secrets.a }"},
		"a variable":    {Rego: "package a\nviolation[{\"msg\": x}] { true }"},
		"http":          {Rego: "package a\nviolation[{\"msg\": \"x\"}] { http.send({\"url\": \"x\"}) }"},
		"recursion":     {Rego: "package a\nviolation[{\"msg\": \"x\"}] { f(1) }\nf(x) { f(x) }"},
		"version":       {Version: "v1", Rego: "package a\nviolation[{\"msg\": \"x\"}] { true }"},
		"library":       {Rego: "package a\nviolation[{\"msg\": \"x\"}] { true }", Libs: []string{"package other"}},
		"empty library": {Rego: "package a\nviolation[{\"msg\": \"x\"}] { true }", Libs: []string{""}},
		"import":        {Rego: "package a\nimport data.other\nviolation[{\"msg\": \"x\"}] { other.x }"},
	} {
		if !both.addTemplate("Refused", source) {
			t.Error(name, "is accepted")
		}
	}
}

const endless = `package endless
violation[{"msg": "x"}] {
  a := numbers.range(1, 3000)[_]
  b := numbers.range(1, 3000)[_]
  c := numbers.range(1, 3000)[_]
  a * b * c == -1
}`

// A policy that does not end ends with its context.
func TestAPolicyThatLoopsEndsWithItsContext(t *testing.T) {
	both := newBoth(t)
	if both.addTemplate("Endless", schema.Source{Rego: endless}) {
		t.Fatal("it is refused")
	}
	loops := constraint("Endless", "loops", nil)
	looping, end := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, end)
	if found, err := both.evaluate(looping, map[string]any{}, nil, loops); err != context.Canceled {
		t.Error(found, err)
	}
	timed, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if found, err := both.evaluate(timed, map[string]any{}, nil, loops); err != context.DeadlineExceeded {
		t.Error(found, err)
	}
}

func BenchmarkEvaluate(b *testing.B) {
	both := newBoth(b)
	both.addTemplates()
	asked := constraint("Labels", "one", map[string]any{"labels": []any{"a"}})
	both.add(asked)
	review := drawnReview(rand.New(rand.NewPCG(1, 2)))
	containers := slices.Repeat([]any{map[string]any{"name": "a", "image": "b"}}, 60)
	review["object"].(map[string]any)["spec"] = map[string]any{"containers": containers}
	text, err := json.Marshal(review)
	if err != nil {
		b.Fatal(err)
	}
	input, err := NewInput(text, nil)
	if err != nil {
		b.Fatal(err)
	}
	parameters, err := NewParameters(map[string]any{"labels": []any{"a"}})
	if err != nil {
		b.Fatal(err)
	}
	for name, run := range map[string]func() error{
		"frameworks": func() error {
			_, err := both.witness.Query(b.Context(), target, []*unstructured.Unstructured{asked}, review)
			return err
		},
		"prepared": func() error {
			_, err := both.tested["Labels"].Evaluate(b.Context(), target, []Asked{{asked, parameters}}, input, both.inventory())
			return err
		},
		"input": func() error { _, err := NewInput(text, nil); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
