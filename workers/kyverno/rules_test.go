package main

import (
	"flag"
	"io"
	"log"
	"slices"
	"strings"
	"testing"

	"admission-gateway.io/worker"
)

const (
	running = `{"containers": [{"name": "main", "image": "shop/web:1"}]}`
	latest  = `{"containers": [{"name": "main", "image": "shop/web:latest"}, {"name": "side", "image": "other/side:1"}]}`
	host    = `{"hostNetwork": true, "containers": [{"name": "main", "image": "shop/web:1"}]}`
)

const enforce = "validationFailureAction: Enforce"

// A rule of each kind allows a good Pod, denies a bad one, and denies a Deployment whose Pods are bad.
func TestRulesOfEachKind(t *testing.T) {
	for name, each := range map[string]struct {
		rule, good, bad, message string
	}{
		"pattern": {"name: check\nvalidate: {message: no host, pattern: {spec: {=(hostNetwork): false}}}", running, host,
			"no host"},
		"anyPattern": {"name: check\nvalidate: {message: no host, anyPattern: [{spec: {hostNetwork: false}}, {spec: {X(hostNetwork): \"null\"}}]}",
			running, host, "no host"},
		"deny": {`name: check
validate:
  message: "{{ request.object.spec.hostNetwork }} is refused"
  deny: {conditions: {any: [{key: "{{ request.object.spec.hostNetwork || ` + "`false`" + ` }}", operator: Equals, value: true}]}}`,
			running, host, "true is refused"},
		"foreach": {`name: check
validate:
  message: no latest
  foreach:
  - list: request.object.spec.containers
    deny: {conditions: {any: [{key: "{{ element.image }}", operator: Equals, value: "*:latest"}]}}`,
			running, latest, "no latest"},
		"podSecurity": {"name: check\nvalidate: {podSecurity: {level: baseline, version: latest}}", running, host, "host namespaces"},
		"cel": {`name: check
validate: {cel: {expressions: [{expression: "!has(object.spec.hostNetwork)", message: no host}]}}`, running, host, "no host"},
	} {
		t.Run(name, func(t *testing.T) {
			s, said := stateOf(t, rules("hosts", enforce, each.rule))
			if len(said) > 0 {
				t.Fatal(said)
			}
			for _, policy := range []string{"hosts/check", "validation"} {
				if got := s.called(t, policy, pod("", each.good), ""); got.err != nil || got.message != "" {
					t.Errorf("%s: good: got %+v", policy, got)
				}
				bad := s.called(t, policy, pod("", each.bad), "")
				want := "resource Pod/shop/web was blocked due to the following policies \n\nhosts:\n  check:"
				if bad.code != 400 || !strings.Contains(bad.message, want) || !strings.Contains(bad.message, each.message) {
					t.Errorf("%s: bad: got %+v", policy, bad)
				}
			}
			got := s.called(t, "hosts/check", deployment(each.bad), "")
			if got.code != 400 || !strings.Contains(got.message, "autogen-check:") {
				t.Errorf("Deployment: got %+v", got)
			}
		})
	}
}

func TestMutateRulesOfEachKind(t *testing.T) {
	for name, each := range map[string]struct{ rule, patch string }{
		"patchStrategicMerge": {"name: set\nmutate: {patchStrategicMerge: {metadata: {labels: {+(team): web}}}}",
			`[{"Op":"add","Path":"/metadata/labels","From":"","Value":{"team":"web"}}]`},
		"patchesJson6902": {`name: set
mutate: {patchesJson6902: "- {op: add, path: /spec/hostNetwork, value: false}"}`,
			`[{"Op":"add","Path":"/spec/hostNetwork","From":"","Value":false}]`},
		"foreach": {`name: set
mutate:
  foreach:
  - list: request.object.spec.containers
    patchStrategicMerge: {spec: {containers: [{name: "{{ element.name }}", tty: true}]}}`,
			`[{"Op":"add","Path":"/spec/containers/0/tty","From":"","Value":true}]`},
	} {
		t.Run(name, func(t *testing.T) {
			s, said := stateOf(t, rules("changes", "background: false", each.rule))
			if len(said) > 0 {
				t.Fatal(said)
			}
			for _, policy := range []string{"changes/set", "mutation"} {
				if got := s.called(t, policy, pod("", running), ""); got.err != nil || got.patch != each.patch {
					t.Errorf("%s: got %+v, expected %s", policy, got, each.patch)
				}
			}
		})
	}
}

const needsTeam = "name: team\nvalidate: {message: needs a team, pattern: {metadata: {labels: {team: \"?*\"}}}}"

// The action of the parameters replaces that of the document.
func TestTheActionDecides(t *testing.T) {
	warning := "policy labels.team: validation error: needs a team. rule team failed at path /metadata/labels/"
	for _, each := range []struct {
		spec, action string
		denied       bool
		warned       bool
		noted        bool
	}{
		{enforce, "", true, false, false},
		{"validationFailureAction: Audit", "", false, false, true},
		{"emitWarning: true", "", false, true, true},
		{"validationFailureAction: Audit", deny, true, false, false},
		{enforce, warn, false, true, false},
		{enforce, audit, false, false, true},
		{"validationFailureActionOverrides: [{action: Enforce, namespaces: [sh*]}]", "", true, false, false},
		{enforce + "\n  validationFailureActionOverrides: [{action: Audit, namespaces: [shop]}]", "", false, false, true},
	} {
		s, _ := stateOf(t, rules("labels", each.spec, needsTeam))
		got := s.called(t, "labels/team", pod("", running), each.action)
		if (got.code == 400) != each.denied || slices.Equal(got.warnings, []string{warning}) != each.warned ||
			(got.noted == warning) != each.noted || got.err != nil {
			t.Errorf("%s, %q: got %+v", each.spec, each.action, got)
		}
	}
}

// A selector of Namespaces in overrides of the policy counts alone: at Kyverno it depends on other policies.
func TestASelectorOfOverridesCounts(t *testing.T) {
	s, _ := stateOf(t,
		rules("labels", "validationFailureActionOverrides: [{action: Enforce, namespaceSelector: {matchLabels: {tier: gold}}}]", needsTeam),
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: gold}}")
	for _, policy := range []string{"labels/team", "validation"} {
		if got := s.called(t, policy, pod("", running), ""); got.code != 400 {
			t.Errorf("%s: got %+v", policy, got)
		}
	}
}

// A policy that errs and is ignored keeps no other from changing the object.
func TestAnErrorOfAMutateRuleIsIgnored(t *testing.T) {
	s, _ := stateOf(t,
		rules("a", "failurePolicy: Ignore", "name: lost\nmutate: {patchStrategicMerge: {metadata: {labels: {lost: \"{{ request.object.metadata.labels.owner }}\"}}}}"),
		rules("b", "failurePolicy: Ignore", "name: set\nmutate: {patchStrategicMerge: {metadata: {labels: {team: web}}}}"),
		rules("c", "failurePolicy: Fail", "name: set\nmutate: {patchStrategicMerge: {metadata: {annotations: {team: \"{{ request.object.metadata.labels.team }}\"}}}}"))
	got := s.called(t, "mutation", pod("", running), "")
	if got.err != nil || !strings.Contains(got.patch, `"team":"web"`) || strings.Contains(got.patch, "lost") {
		t.Errorf("got %+v", got)
	}
}

// `validation` denies for rules that enforce, and names those only.
func TestAllRulesAtOnce(t *testing.T) {
	s, _ := stateOf(t,
		rules("labels", enforce, needsTeam, "name: owner\nvalidate: {failureAction: Audit, message: needs an owner, pattern: {metadata: {labels: {owner: \"?*\"}}}}"),
		rules("audited", "emitWarning: true", needsTeam))
	got := s.called(t, "validation", pod("", running), "")
	if got.code != 400 || !strings.Contains(got.message, "team:") || strings.Contains(got.message, "owner") || strings.Contains(got.message, "audited") {
		t.Errorf("got %+v", got)
	}
	got = s.called(t, "validation", pod(`, "labels": {"team": "a"}`, running), "")
	if got.code != 0 || len(got.warnings) != 0 || !strings.Contains(got.noted, "labels.owner") {
		t.Errorf("got %+v", got)
	}
}

// Later policies see what earlier ones have changed.
func TestAllChangesAtOnce(t *testing.T) {
	s, _ := stateOf(t,
		rules("a", "background: false", "name: set\nmutate: {patchStrategicMerge: {metadata: {labels: {team: web}}}}"),
		rules("b", "background: false", `name: copy
mutate: {patchStrategicMerge: {metadata: {annotations: {team: "{{ request.object.metadata.labels.team }}"}}}}`))
	got := s.called(t, "mutation", pod("", running), "")
	if got.err != nil || !strings.Contains(got.patch, `"/metadata/annotations","From":"","Value":{"team":"web"}`) {
		t.Errorf("got %+v", got)
	}
}

func TestAnErrorIsAFailureOfARule(t *testing.T) {
	broken := `name: broken
validate: {message: refused, deny: {conditions: {any: [{key: "{{ request.object.spec.nothing }}", operator: Equals, value: 1}]}}}`
	s, _ := stateOf(t, rules("broken", enforce, broken))
	if got := s.called(t, "broken/broken", pod("", running), ""); got.err == nil || !strings.Contains(got.err.Error(), "policy broken.broken:") {
		t.Errorf("got %+v", got)
	}
	if got := s.called(t, "validation", pod("", running), ""); got.code != 400 {
		t.Errorf("got %+v", got)
	}
	s, _ = stateOf(t, rules("broken", enforce+"\n  failurePolicy: Ignore", broken))
	if got := s.called(t, "validation", pod("", running), ""); got.code != 0 || len(got.warnings) != 1 {
		t.Errorf("got %+v", got)
	}
}

func namesOf(s *state) (names []string) {
	for _, each := range s.served {
		name := each.name
		if each.mutating {
			name += " mutating"
		}
		if each.err != nil {
			name += " not served"
		}
		names = append(names, name)
	}
	return names
}

func TestNamesOfPolicies(t *testing.T) {
	namespaced := strings.Replace(strings.Replace(rules("own", enforce, needsTeam), "ClusterPolicy", "Policy", 1), "{name: own}", "{name: own, namespace: shop}", 1)
	s, said := stateOf(t, namespaced,
		rules("bound", "applyRules: One", needsTeam, "name: set\nmutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}"),
		rules("first", enforce, needsTeam, "name: images\nverifyImages: [{imageReferences: [\"*\"], attestors: [{entries: [{keys: {publicKeys: abc}}]}]}]"),
		strings.Replace(rules("wrong", "nonsense: 1", needsTeam), "validate", "validate", 1),
		rules("background", "admission: false", needsTeam))
	want := []string{"bound", "bound/mutation mutating", "first/team", "first/images not served", "wrong/team not served", "shop/own/team"}
	if got := namesOf(s); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if len(said) != 2 || !strings.Contains(said[0], "first/images") || !strings.Contains(said[1], `unknown field "spec.nonsense"`) {
		t.Errorf("got %q", said)
	}
	if got := s.called(t, "first/images", pod("", running), ""); got.err == nil || !strings.Contains(got.err.Error(), imagesSentence) {
		t.Errorf("got %+v", got)
	}
	s2, said := stateOf(t, rules("old", enforce, "name: check\nvalidate: {message: refused, assert: {spec: {hostNetwork: false}}}"))
	if got := s2.called(t, "old/check", pod("", running), ""); got.err == nil || len(said) != 1 || !strings.Contains(said[0], assertSentence) {
		t.Errorf("got %+v, %q", got, said)
	}
	// A Policy is for its own Namespace.
	if got := s.called(t, "shop/own/team", pod("", running), ""); got.code != 400 {
		t.Errorf("got %+v", got)
	}
	other := strings.ReplaceAll(pod("", running), `"shop"`, `"other"`)
	if got := s.called(t, "shop/own/team", other, ""); got.code != 0 || got.err != nil {
		t.Errorf("got %+v", got)
	}
}

// Whether a policy has variants for pod controllers depends on all of its rules.
func TestOneRuleHasTheVariantsOfItsPolicy(t *testing.T) {
	named := strings.Replace(rules("labels", enforce, needsTeam, "name: other\nvalidate: {message: refused, deny: {}}"),
		"- match: {any: [{resources: {kinds: [Pod]}}]}\n    name: other", "- match: {any: [{resources: {kinds: [Pod], names: [x]}}]}\n    name: other", 1)
	s, said := stateOf(t, named)
	if got := s.called(t, "labels/team", deployment(running), ""); got.code != 0 || len(said) > 0 {
		t.Errorf("got %+v, %q", got, said)
	}
}

func TestExceptionsAndRoles(t *testing.T) {
	exception := `
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: allowed, namespace: shop}
spec:
  background: false
  exceptions: [{policyName: labels, ruleNames: [team]}]
  match: {any: [{resources: {kinds: [Pod], names: [web]}, clusterRoles: [admin]}]}`
	binding := `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admins, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: ann, apiGroup: rbac.authorization.k8s.io}]`
	s, said := stateOf(t, rules("labels", enforce, needsTeam), exception, binding)
	if got := s.called(t, "labels/team", pod("", running), deny); got.code != 0 || got.err != nil || len(said) > 0 {
		t.Errorf("got %+v, %q", got, said)
	}
	s, _ = stateOf(t, rules("labels", enforce, needsTeam), exception)
	if got := s.called(t, "labels/team", pod("", running), ""); got.code != 400 {
		t.Errorf("got %+v", got)
	}
}

// Exceptions of a cluster apply only where the flag says so, those of folders unless it names others.
func TestExceptionsOfNamespaces(t *testing.T) {
	exception := `
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: own, namespace: shop}
spec:
  exceptions: [{policyName: labels, ruleNames: [team]}]
  match: {any: [{resources: {kinds: [Pod]}}]}`
	for _, each := range []struct {
		flags     []string
		isCluster bool
		applies   bool
	}{
		{nil, false, true},
		{nil, true, false},
		{[]string{"--exception-namespaces=other"}, false, false},
		{[]string{"--exception-namespaces=other,shop"}, true, true},
		{[]string{"--exception-namespaces=other", "--exception-namespaces", "shop"}, true, true},
		{[]string{"--exception-namespaces=*"}, true, true},
		{[]string{"--exception-namespaces="}, true, false},
	} {
		p := newProgram(worker.NewServer(), log.New(io.Discard, "", 0))
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		p.allowed.define(flags)
		if err := flags.Parse(each.flags); err != nil {
			t.Fatal(err)
		}
		p.source.Cluster = each.isCluster
		s, said := p.stateOf(objectsOf(t, rules("labels", enforce, needsTeam), exception))
		got := s.called(t, "labels/team", pod("", running), "")
		if (got.code == 0) != each.applies || (len(said) == 0) != each.applies {
			t.Errorf("%v: got %+v, %q", each, got, said)
		}
	}
	if err := (exceptionNamespaces{"Shop"}).check(); err == nil || !strings.Contains(err.Error(), `found "Shop"`) {
		t.Errorf("got %v", err)
	}
}

func TestLabelsOfTheNamespace(t *testing.T) {
	policy := strings.Replace(rules("labels", enforce, needsTeam), "kinds: [Pod]", "kinds: [Pod], namespaceSelector: {matchLabels: {tier: gold}}", 1)
	s, _ := stateOf(t, policy)
	if got := s.called(t, "labels/team", pod("", running), ""); got.err == nil {
		t.Errorf("got %+v", got)
	}
	gold := worker.WithNamespaceObject([]byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "gold"}}}`))
	if got := s.called(t, "labels/team", pod("", running), "", gold); got.code != 400 {
		t.Errorf("got %+v", got)
	}
	s, _ = stateOf(t, policy, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: tin}}")
	if got := s.called(t, "labels/team", pod("", running), ""); got.code != 0 || got.err != nil {
		t.Errorf("got %+v", got)
	}
}
