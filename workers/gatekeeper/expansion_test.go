package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"admission-gateway.io/worker"
	expansionunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/expansion/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/expansion"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "registry.example/team/app:1"}]}
`

// expansionTemplate returns the YAML of an ExpansionTemplate from one kind of apps/v1 to another.
func expansionTemplate(name, from, to, more string) string {
	group, version, kind := "", "v1", to
	if to != "Pod" {
		group = "apps"
	}
	return fmt.Sprintf(`---
apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: {name: %s}
spec:
  applyTo: [{groups: [apps], versions: [v1], kinds: [%s]}]
  templateSource: spec.template
  generatedGVK: {group: "%s", version: %s, kind: %s}
%s`, name, from, group, version, kind, more)
}

// expansionOf returns the templates of documents, which have to be valid.
func expansionOf(t testing.TB, text string) *expansionSet {
	t.Helper()
	objects := documentsOf(t, text)
	mutators, problems := newMutatorSet(objects, noProviders(t))
	made, further := newExpansionSet(objects, mutators)
	if problems = append(problems, further...); len(problems) > 0 {
		t.Fatal(problems)
	}
	return made
}

func base(t testing.TB, text string) *mutationtypes.Mutable {
	return &mutationtypes.Mutable{Object: documentsOf(t, text)[0].Unstructured, Username: "alice"}
}

func TestAGeneratorGivesItsResultant(t *testing.T) {
	made, err := expansionOf(t, expansionTemplate("pods", "Deployment", "Pod", "  enforcementAction: warn\n")+
		mutator("v1", "Assign", "generated", onPods+"match: {source: Generated}\nlocation: spec.priorityClassName\nparameters: {assign: {value: low}}")+
		mutator("v1", "Assign", "original", onPods+"match: {source: Original}\nlocation: spec.nodeName\nparameters: {assign: {value: n}}"),
	).expand(t.Context(), base(t, deployment))
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	want := `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-pod", "namespace": "shop", "labels": {"app": "web"},
	  "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": ""}]},
	  "spec": {"containers": [{"name": "main", "image": "registry.example/team/app:1"}], "priorityClassName": "low"}}`
	if !same(t, made[0].Obj.Object, json.RawMessage(want)) || made[0].TemplateName != "pods" || made[0].EnforcementAction != "warn" {
		t.Errorf("got %v", made[0])
	}
}

func TestWhatCannotBeExpanded(t *testing.T) {
	templates := expansionTemplate("pods", "Deployment", "Pod", "")
	for name, sample := range map[string]struct{ text, object, want string }{
		"no template": {templates, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}",
			`could not find source field "spec.template" in resource web`},
		"no object": {templates, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: 1}",
			"could not extract source field from unstructured: .spec.template accessor error: 1 is of the type int64, expected map[string]interface{}"},
		"a mutator fails": {templates + assign("deep", "spec.containers.tty", "true"), deployment,
			"failed to mutate resultant resource web-pod: mutation "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := expansionOf(t, sample.text).expand(t.Context(), base(t, sample.object))
			if err == nil || !strings.HasPrefix(err.Error(), sample.want) {
				t.Errorf("got %v, expected %s", err, sample.want)
			}
		})
	}
}

func TestTemplatesThatFormACycleAreLeftOut(t *testing.T) {
	text := expansionTemplate("there", "Deployment", "ReplicaSet", "") + expansionTemplate("back", "ReplicaSet", "Deployment", "") +
		expansionTemplate("pods", "ReplicaSet", "Pod", "") + expansionTemplate("self", "Deployment", "Deployment", "") +
		expansionTemplate("pods", "StatefulSet", "Pod", "") + expansionTemplate("typo", "StatefulSet", "Pod", "  enforcment: deny\n")
	objects := documentsOf(t, text)
	mutators, _ := newMutatorSet(objects, noProviders(t))
	made, problems := newExpansionSet(objects, mutators)
	want := []string{
		"text:4: ExpansionTemplate self: ExpansionTemplate self generates GVK apps/v1, Kind=Deployment, but also applies to that same GVK",
		"text:5: ExpansionTemplate pods: the same ExpansionTemplate stands in text:3",
		`text:6: ExpansionTemplate typo: strict decoding error: unknown field "spec.enforcment"`,
		"text:2: ExpansionTemplate/back is left out, as are all that generate in a cycle: back, there",
		"text:1: ExpansionTemplate/there is left out, as are all that generate in a cycle: back, there",
	}
	if found := append(texts(problems), made.conflicts...); !slices.Equal(found, want) {
		t.Errorf("got %q", found)
	}
	for kind, count := range map[string]int{"Deployment": 0, "ReplicaSet": 1} {
		found, err := made.expand(t.Context(), base(t, strings.Replace(deployment, "kind: Deployment", "kind: "+kind, 1)))
		if err != nil || len(found) != count {
			t.Errorf("%s: got %v, %v", kind, found, err)
		}
	}
}

// nested returns kinds K0 to Kn, each of which generates the next one.
func nested(depth int) (templates, object string) {
	var text strings.Builder
	for index := range depth {
		text.WriteString(expansionTemplate(fmt.Sprintf("t%d", index), fmt.Sprintf("K%d", index), fmt.Sprintf("K%d", index+1), ""))
	}
	content := "{}"
	for range depth {
		content = fmt.Sprintf("{spec: {template: %s}}", content)
	}
	return text.String(), "apiVersion: apps/v1\nkind: K0\nmetadata: {name: web}\n" + strings.TrimSuffix(strings.TrimPrefix(content, "{"), "}")
}

func TestTheDepthOfExpansionIsLimited(t *testing.T) {
	for depth, want := range map[int]string{29: "<nil>", 30: "maximum recursion depth of 30 reached"} {
		templates, object := nested(depth)
		made, err := expansionOf(t, templates).expand(t.Context(), base(t, object))
		if fmt.Sprint(err) != want || err == nil && len(made) != depth {
			t.Errorf("%d: got %d resultants, %v", depth, len(made), err)
		}
	}
}

// Mutators of resultants know the deadline of the call, which Gatekeeper's own expansion does not pass on.
func TestTheDeadlineOfTheCallEndsTheMutationOfResultants(t *testing.T) {
	set := expansionOf(t, expansionTemplate("pods", "Deployment", "Pod", "")+chain(1000))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := set.expand(ctx, base(t, strings.Replace(deployment, "app: web", "l1000: x", 1))); err != context.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

// The resultants are those of Gatekeeper's own system with all templates, which makes them in random order.
func TestResultantsAreThoseOfTheEngine(t *testing.T) {
	text := expansionTemplate("sets", "Deployment", "ReplicaSet", "") + expansionTemplate("pods", "ReplicaSet", "Pod", "") +
		expansionTemplate("direct", "Deployment", "Pod", "  enforcementAction: dryrun\n") +
		assign("class", "spec.priorityClassName", "low") +
		mutator("v1", "Assign", "deep", "applyTo: [{groups: [apps], versions: [v1], kinds: [ReplicaSet]}]\nlocation: spec.template.spec.hostname\nparameters: {assign: {value: h}}")
	object := strings.Replace(deployment, "    metadata:", "    spec: {template: {spec: {containers: []}}}\n    metadata:", 1)
	object = strings.Replace(object, "    spec: {containers", "    more: {containers", 1)
	ours := expansionOf(t, text)
	engine := expansion.NewSystem(ours.mutators.system)
	for _, read := range documentsOf(t, text) {
		if read.GetKind() != "ExpansionTemplate" {
			continue
		}
		template := &expansionunversioned.ExpansionTemplate{}
		if err := convert(read, template); err != nil {
			t.Fatal(err)
		}
		if err := engine.UpsertTemplate(template); err != nil {
			t.Fatal(err)
		}
	}
	found, err := ours.expand(t.Context(), base(t, object))
	if err != nil {
		t.Fatal(err)
	}
	want, err := engine.Expand(base(t, object))
	if err != nil {
		t.Fatal(err)
	}
	for _, resultants := range [][]*expansion.Resultant{found, want} {
		slices.SortFunc(resultants, func(a, b *expansion.Resultant) int {
			return cmp.Or(strings.Compare(a.TemplateName, b.TemplateName), strings.Compare(a.Obj.GetName(), b.Obj.GetName()))
		})
	}
	if len(found) != 3 || !same(t, found, want) {
		t.Errorf("got %v, expected %v", found, want)
	}
}

func TestAnObjectWithoutKindCannotBeExpanded(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(schema.GroupVersionKind{})
	_, err := expansionOf(t, "").expand(t.Context(), &mutationtypes.Mutable{Object: object})
	if fmt.Sprint(err) != "cannot expand resource  with empty GVK" {
		t.Errorf("got %v", err)
	}
}

func TestTheNumberOfResultantsIsLimited(t *testing.T) {
	templates, object := nested(20)
	twice := templates + strings.ReplaceAll(templates, "metadata: {name: t", "metadata: {name: u")
	_, err := expansionOf(t, twice).expand(t.Context(), base(t, object))
	if err == nil || err.Error() != "the object generates more than 1000 others" {
		t.Error(err)
	}
	padded := strings.Replace(object, "{name: web}", "{name: web, annotations: {a: "+strings.Repeat("x", 3<<20)+"}}", 1)
	_, err = expansionOf(t, twice).expand(t.Context(), base(t, padded))
	if err == nil || err.Error() != "the object generates more than 5 others" {
		t.Error(err)
	}
	s := stateOf(t, twice, needsLabel, constraintText("NeedsLabel", "owners", "{parameters: {}}"))
	spec := strings.Repeat(`{"spec": {"template": `, 20) + "{}" + strings.Repeat("}}", 20)
	request := strings.NewReplacer(
		`"kind": {"version"`, `"kind": {"group": "apps", "version"`, `"apiVersion": "v1"`, `"apiVersion": "apps/v1"`,
		`"kind": "Pod"`, `"kind": "K0"`, `"metadata": {`, strings.TrimSuffix(spec[1:], "}")+`, "metadata": {`,
	).Replace(pod)
	_, err = call(t, s, "NeedsLabel/owners", request, "{}")
	if denial := (&worker.Denial{}); err == nil || errors.As(err, &denial) || err.Error() != "the object generates more than 1000 others" {
		t.Error(err)
	}
}

func TestTheDeadlineOfTheCallEndsAnExpansion(t *testing.T) {
	templates, object := nested(3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := expansionOf(t, templates).expand(ctx, base(t, object)); err != context.Canceled {
		t.Error(err)
	}
}
