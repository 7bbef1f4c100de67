package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"admission-gateway.io/worker"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/expansion"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
)

const podsOfDeployments = `
apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: {name: pods}
spec:
  applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]
  templateSource: spec.template
  generatedGVK: {group: "", version: v1, kind: Pod}
`

const deploymentRequest = `{"uid": "1", "operation": "CREATE", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
	"resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "namespace": "shop", "name": "web",
	"object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "labels": {"team": "a"}},
	"spec": {"template": {"metadata": {}, "spec": {}}}}}`

// A Deployment is denied for its Pods, whose mutators count.
func TestAConstraintSeesWhatAnObjectGenerates(t *testing.T) {
	pods := constraintText("NeedsLabel", "owners", "{parameters: {}, match: {kinds: [{apiGroups: [\"\"], kinds: [Pod]}]}}")
	denial := "[owners] [Implied by pods] web-pod has no label team"
	s := stateOf(t, needsLabel, pods, podsOfDeployments)
	for _, policy := range []string{"NeedsLabel/owners", "validation"} {
		_, err := call(t, s, policy, deploymentRequest, "{}")
		denied(t, err, 403, denial)
	}
	warning := stateOf(t, needsLabel, pods, strings.TrimSpace(podsOfDeployments)+"\n  enforcementAction: warn\n")
	review, err := call(t, warning, "validation", deploymentRequest, "{}")
	if err != nil || !same(t, review.Warnings(), []string{denial}) {
		t.Errorf("got %v, %v", review.Warnings(), err)
	}
	// The action of the parameters counts more than that of the template.
	_, err = call(t, warning, "NeedsLabel/owners", deploymentRequest, `{"action": "deny"}`)
	denied(t, err, 403, denial)
	labelled := stateOf(t, needsLabel, pods, podsOfDeployments, mutator("v1", "AssignMetadata", "team",
		"match: {source: Generated}\nlocation: metadata.labels.team\nparameters: {assign: {value: a}}"))
	if _, err := call(t, labelled, "validation", deploymentRequest, "{}"); err != nil {
		t.Error(err)
	}
}

func TestAnObjectThatCannotBeExpandedIsDeniedWith500(t *testing.T) {
	s := stateOf(t, needsLabel, constraintText("NeedsLabel", "owners", "{}"), podsOfDeployments)
	request := strings.Replace(deploymentRequest, `"template":`, `"other":`, 1)
	for _, policy := range []string{"NeedsLabel/owners", "validation"} {
		_, err := call(t, s, policy, request, "{}")
		denied(t, err, 500, `unable to expand object: could not find source field "spec.template" in resource web`)
	}
}

// registeredImages denies images that a provider does not know.
var registeredImages = regoTemplate("RegisteredImages", `violation[{"msg": msg}] {
  keys := [image | image := input.review.object.spec.containers[_].image]
  answer := external_data({"provider": "registry", "keys": keys})
  msg := sprintf("%v %v", [answer.errors, answer.system_error])
  msg != "[] "
}`)

func TestRegoOfATemplateAsksAProvider(t *testing.T) {
	provider := newRegistry(t)
	texts := []string{registeredImages, constraintText("RegisteredImages", "known", "{}"), provider.document("registry", provider.URL, 60)}
	request := func(image string) string {
		return strings.Replace(pod, `"namespace": "shop"}}`, `"namespace": "shop"}, "spec": {"containers": [{"image": "`+image+`"}]}}`, 1)
	}
	s := stateOf(t, texts...)
	if _, err := call(t, s, "validation", request("known:1"), "{}"); err != nil {
		t.Error(err)
	}
	_, err := call(t, s, "validation", request("unknown:1"), "{}")
	denied(t, err, 403, `[known] [["unknown:1", "not found"]] `)
	// Each state has its own providers, also while another one is used.
	_, err = call(t, stateOf(t, texts[:2]...), "validation", request("known:1"), "{}")
	denied(t, err, 403, "[known] null key is not found in provider cache")
	if _, err := call(t, s, "validation", request("known:2"), "{}"); err != nil {
		t.Error(err)
	}
}

// The engine serves the mutators of the documents that it was given last, and logs those that conflict.
func TestTheMutatorsFollowTheDocuments(t *testing.T) {
	var logged strings.Builder
	e := newEngine(worker.NewServer(), logTo(&logged))
	list, object := assign("list", "spec.containers[name: main].tty", "true"), assign("object", "spec.containers.tty", "true")
	if err := e.load(documentsOf(t, list+object)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"text:1: Assign/list is left out", "text:2: Assign/object is left out"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("got %q", logged.String())
		}
	}
	logged.Reset()
	if err := e.reload(documentsOf(t, list+assign("broken", "spec.[", "1"))); err != nil || !strings.Contains(logged.String(), "broken") {
		t.Errorf("got %q, %v", logged.String(), err)
	}
}

// What a call had no time for is derived anew by the next one that has the same request.
func TestACallWithoutTimeCostsNoOther(t *testing.T) {
	s := stateOf(t, podsOfDeployments, chain(300))
	request := strings.Replace(deploymentRequest, `"metadata": {},`, `"metadata": {"labels": {"l300": "x"}},`, 1)
	review := parseReview(t, request)
	hurried, cancel := contextWithTimeout(t, time.Millisecond)
	defer cancel()
	<-hurried.Done()
	if err := s.reviewAll(hurried, review); !isOver(err) {
		t.Errorf("got %v", err)
	}
	if err := s.reviewAll(t.Context(), review); err != nil {
		t.Errorf("got %v", err)
	}
}

// A finalizer holds a mutator that is deleted; Gatekeeper applies it no more.
func TestAMutatorThatIsBeingDeletedIsGone(t *testing.T) {
	e := newEngine(worker.NewServer(), logTo(io.Discard))
	text := strings.Replace(assign("class", "spec.priorityClassName", "low"), "{name: class}",
		"{name: class, finalizers: [a/b], deletionTimestamp: 2026-01-01T00:00:00Z}", 1)
	if err := e.applier(true)(documentsOf(t, text+assign("host", "spec.hostname", "h"))); err != nil {
		t.Fatal(err)
	}
	for _, each := range []struct {
		name    string
		isKnown bool
	}{{"class", false}, {"host", true}} {
		if _, isKnown := e.good[identity{group: mutationsGroup, kind: "Assign", name: each.name}]; isKnown != each.isKnown {
			t.Errorf("%s: got %v", each.name, isKnown)
		}
	}
}

// countingExpander counts its calls.
type countingExpander struct {
	expander
	count int
}

func (c *countingExpander) expand(ctx context.Context, base *mutationtypes.Mutable) ([]*expansion.Resultant, error) {
	c.count++
	return c.expander.expand(ctx, base)
}

func TestAnObjectIsExpandedOnceForAllPolicies(t *testing.T) {
	s := stateOf(t, needsLabel, constraintText("NeedsLabel", "a", "{parameters: {}}"), constraintText("NeedsLabel", "b", "{parameters: {}}"), podsOfDeployments)
	counting := &countingExpander{expander: s.expander}
	s.expander = counting
	review := parseReview(t, deploymentRequest, worker.WithPrepared(&settings{constraint: s.constraints[0].constraint}))
	for index := range s.constraints {
		denied(t, s.policy(s.constraints[index])(t.Context(), review), 403, "[a] [Implied by pods] web-pod has no label team")
	}
	_ = s.reviewAll(t.Context(), review)
	if counting.count != 1 {
		t.Errorf("it was expanded %d times", counting.count)
	}
}

// The objects of an inventory change often: mutators and templates are made anew only if they change.
func TestMutatorsAreMadeAnewOnlyIfTheyChange(t *testing.T) {
	e := newEngine(worker.NewServer(), logTo(io.Discard))
	text := assign("class", "spec.priorityClassName", "low") + "---" + podsOfDeployments
	sets := make([]*state, 3)
	for index, more := range []string{"", "---" + webPod, assign("host", "spec.hostname", "h")} {
		sets[index], _ = e.stateOf(documentsOf(t, text+more))
	}
	if sets[0].mutators != sets[1].mutators || sets[0].expander != sets[1].expander || sets[0].providers != sets[1].providers {
		t.Error("they were made anew")
	}
	if sets[2].mutators == sets[0].mutators || sets[2].mutators.count != 2 {
		t.Errorf("got %d mutators", sets[2].mutators.count)
	}
}
