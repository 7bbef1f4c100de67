package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"testing"

	"admission-gateway.io/worker"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// following is an engine that is given documents again and again.
type following struct {
	*engine
	t   *testing.T
	log bytes.Buffer
	// apply is called as by a folder or a cluster.
	apply func([]document) error
}

func follow(t *testing.T, isCluster bool, texts ...string) *following {
	t.Helper()
	made := &following{t: t}
	made.engine = newEngine(worker.NewServer(), log.New(&made.log, "", 0))
	made.apply = made.applier(isCluster)
	made.have(texts...)
	return made
}

// have gives the engine other documents.
func (f *following) have(texts ...string) {
	f.t.Helper()
	f.log.Reset()
	if err := f.apply(parse(f.t, texts...)); err != nil {
		f.t.Fatal(err)
	}
}

// answers checks what a policy answers for the Pod: the message of a denial or an error, or nothing.
func (f *following) answers(name, expected string) {
	f.t.Helper()
	_, err := call(f.t, f.current.Load(), name, pod, "{}")
	if text := textOf(err); text != expected {
		f.t.Errorf("%s: got %q, expected %q", name, text, expected)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// logged checks that the last documents were logged with the text.
func (f *following) logged(text string) {
	f.t.Helper()
	if !strings.Contains(f.log.String(), text) {
		f.t.Errorf("got %q, expected %q", f.log.String(), text)
	}
}

var (
	owners      = constraintText("NeedsLabel", "owners", "{parameters: {}}")
	brokenRego  = strings.Replace(needsLabel, "msg :=", "msg := := ", 1)
	brokenOwner = constraintText("NeedsLabel", "owners", "{parameters: {label: 3}}")
)

func TestAllProblemsOfAFolderEndTheStart(t *testing.T) {
	apply := quietEngine().applier(false)
	err := apply(parse(t, brokenRego, owners, regoTemplate("Other", `violation[{"msg": "x"}] { false }`),
		constraintText("Other", "typo", "{parameters: {lable: x}}"), constraintText("Missing", "none", "{}")))
	for _, expected := range []string{
		"0.yaml:1: ConstraintTemplate needslabel: ", "rego_parse_error",
		"1.yaml:1: NeedsLabel owners: there is no usable ConstraintTemplate for the kind NeedsLabel",
		`3.yaml:1: Other typo: invalid Constraint: unknown fields: [spec.parameters.lable]`,
		"4.yaml:1: Missing none: there is no usable ConstraintTemplate for the kind Missing",
	} {
		if !strings.Contains(textOf(err), expected) {
			t.Errorf("got %v, expected %q", err, expected)
		}
	}
}

func TestTheLastGoodVersionOfADocumentStays(t *testing.T) {
	f := follow(t, false, needsLabel, owners)
	f.have(brokenRego, owners)
	f.answers("NeedsLabel/owners", "[owners] web has no label team")
	f.logged("its last good version stays")
	for _, each := range strings.Split(strings.TrimSpace(f.log.String()), "\n") {
		if !strings.HasPrefix(each, "gatekeeper: ") {
			t.Errorf("a line of the log is %q", each)
		}
	}
	f.have(needsLabel, brokenOwner)
	f.answers("NeedsLabel/owners", "[owners] web has no label team")
	f.have(needsLabel, brokenOwner, stored)
	if f.log.Len() > 0 {
		t.Errorf("logged again: %s", &f.log)
	}
	// It stays however often the documents are read.
	f.have(needsLabel, brokenOwner, constraintText("NeedsLabel", "more", `{parameters: {label: "more"}}`))
	f.answers("NeedsLabel/owners", "[owners] web has no label team")
	f.answers("NeedsLabel/more", "[more] web has no label more")
	f.have(needsLabel, constraintText("NeedsLabel", "owners", `{parameters: {label: "owner"}}`))
	f.answers("NeedsLabel/owners", "[owners] web has no label owner")
	if f.log.Len() > 0 {
		t.Errorf("got %s", &f.log)
	}
}

func TestABadDocumentCostsItsOwnPolicy(t *testing.T) {
	f := follow(t, true, needsLabel, owners, constraintText("NeedsLabel", "bad", "{parameters: {label: 3}}"),
		constraintText("Missing", "none", "{}"))
	f.logged("NeedsLabel bad: ")
	f.answers("NeedsLabel/owners", "[owners] web has no label team")
	f.answers("Missing/none", "there is no usable ConstraintTemplate for the kind Missing")
	f.answers("validation", "[owners] web has no label team")
	for _, each := range f.current.Load().constraints {
		if bad := each.name != "NeedsLabel/owners"; bad != strings.HasPrefix(each.about(), "Cannot be evaluated: ") {
			t.Errorf("%s: got %q", each.name, each.about())
		}
	}
	// A document that was never good is not kept as if it had been.
	f.have(needsLabel, owners, constraintText("NeedsLabel", "bad", "{parameters: {label: 4}}"))
	if text := f.log.String(); strings.Contains(text, "stays") {
		t.Errorf("got %s", text)
	}
	f.have(needsLabel, owners, constraintText("NeedsLabel", "bad", "{parameters: {label: x}}"))
	f.answers("NeedsLabel/bad", "[bad] web has no label x")
}

func TestATemplateThatHasNotChangedIsNotCompiledAgain(t *testing.T) {
	f := follow(t, false, needsLabel, owners, stored)
	before := f.current.Load().constraints[0].constraint
	f.have(constraintText("NeedsLabel", "more", "{parameters: {}}"), stored, needsLabel, owners)
	after := f.current.Load().constraints
	if len(after) != 2 || after[1].constraint != before || after[0].constraint.template != before.template {
		t.Errorf("got %v", after)
	}
	if len(f.templates) != 1 || len(f.constraints) != 2 {
		t.Errorf("%d templates and %d constraints are kept", len(f.templates), len(f.constraints))
	}
}

func TestACallInFlightEndsWithItsDocuments(t *testing.T) {
	f := follow(t, false, needsLabel, owners)
	before := f.current.Load()
	f.have(needsLabel)
	_, err := call(t, before, "NeedsLabel/owners", pod, "{}")
	denied(t, err, 403, "[owners] web has no label team")
	if found := f.current.Load().constraints; len(found) != 0 {
		t.Errorf("got %v", found)
	}
}

func TestTheInventoryFollowsTheDocuments(t *testing.T) {
	labelled := strings.Replace(pod, `"name": "web", "namespace"`, `"name": "web", "labels": {"team": "a"}, "namespace"`, 1)
	f := follow(t, false, sameLabel, constraintText("SameLabel", "same", "{}"))
	answers := func(expected string) {
		t.Helper()
		_, err := call(t, f.current.Load(), "SameLabel/same", labelled, "{}")
		if text := textOf(err); text != expected {
			t.Errorf("got %q, expected %q", text, expected)
		}
	}
	answers("")
	before := f.current.Load()
	f.have(sameLabel, constraintText("SameLabel", "same", "{}"), stored)
	answers("[same] ConfigMap other/stored has the team a\n[same] there is shop")
	if !f.current.Load().hasPoliciesOf(before) {
		t.Error("the policies are replaced for the inventory")
	}
	config := `
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: {name: config, namespace: gatekeeper-system}
spec: {match: [{excludedNamespaces: [oth*], processes: [sync]}]}`
	f.have(sameLabel, constraintText("SameLabel", "same", "{}"), stored, config)
	answers("[same] there is shop")
}

func TestADocumentThatStandsTwiceIsAProblem(t *testing.T) {
	_, problems := quietEngine().stateOf(parse(t, needsLabel, needsLabel, owners, owners))
	if len(problems) != 2 || !strings.Contains(problems[0].Error(), "1.yaml:1: ConstraintTemplate needslabel: ") ||
		!strings.Contains(problems[1].Error(), "the same constraint stands in 2.yaml:1") {
		t.Errorf("got %v", problems)
	}
}

func TestTheKindsOfTheInventoryAreFollowed(t *testing.T) {
	found := wanted(parse(t, `
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: {name: config}
spec: {sync: {syncOnly: [{group: apps, version: v1, kind: Deployment}]}}
---
apiVersion: syncset.gatekeeper.sh/v1alpha1
kind: SyncSet
metadata: {name: a}
spec: {gvks: [{version: v1, kind: Pod}, {group: apps, version: v1, kind: Deployment}]}`))
	expected := []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
	}
	rest := found[len(ownKinds):]
	if len(rest) != len(expected) || rest[0] != expected[0] || rest[1] != expected[1] {
		t.Errorf("got %v", rest)
	}
}

func TestPoliciesAreServed(t *testing.T) {
	f := follow(t, false, needsLabel, owners)
	addresses, err := f.server.Start(worker.Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil || len(addresses) != 1 {
		t.Fatal(err)
	}
	f.have(needsLabel)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = f.server.Stop(ended)
}

// Policies are evaluated concurrently, also while the documents change. The race detector finds what they share wrongly.
func TestPoliciesAreEvaluatedWhileDocumentsChange(t *testing.T) {
	same, cel := constraintText("SameLabel", "same", "{}"), constraintText("CelOnly", "cel", "{}")
	f := follow(t, false, needsLabel, sameLabel, celTemplate, owners, same, cel)
	labelled := strings.Replace(pod, `"name": "web", "namespace"`, `"name": "web", "labels": {"team": "a"}, "namespace"`, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	for _, policy := range []string{"validation", "SameLabel/same", "CelOnly/cel", "NeedsLabel/owners"} {
		for range 2 {
			ended.Go(func() {
				for ctx.Err() == nil {
					for _, parameters := range []string{"{}", `{"action": "warn"}`} {
						_, err := call(t, f.current.Load(), policy, labelled, parameters)
						var denial *worker.Denial
						if err != nil && !errors.As(err, &denial) {
							t.Errorf("%s: %v", policy, err)
							return
						}
					}
				}
			})
		}
	}
	for index := range 10 {
		f.have(needsLabel, sameLabel, celTemplate, owners, same, cel, stored)
		f.have(needsLabel, sameLabel, celTemplate, owners, same, cel, constraintText("NeedsLabel", fmt.Sprintf("c%d", index), "{parameters: {}}"))
	}
	cancel()
	ended.Wait()
}
