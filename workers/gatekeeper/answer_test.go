package main

import (
	"slices"
	"strings"
	"testing"

	"admission-gateway.io/worker"
)

func TestTheParameterActionReplacesThatOfTheConstraint(t *testing.T) {
	for _, own := range []string{"deny", "warn", "dryrun", "unknown"} {
		s := stateOf(t, needsLabel, constraintText("NeedsLabel", "owners", "{parameters: {}, enforcementAction: "+own+"}"))
		for _, action := range []string{"", "deny", "warn", "audit"} {
			parameters, effective := "{}", own
			if action != "" {
				parameters, effective = `{"action": "`+action+`"}`, action
			}
			review, err := call(t, s, "NeedsLabel/owners", pod, parameters)
			const line = "[owners] web has no label team"
			if denies := effective == "deny"; denies != (err != nil) {
				t.Errorf("%s, %s: got %v", own, action, err)
			}
			if warns := effective == "warn"; warns != slices.Equal(review.Warnings(), []string{line}) {
				t.Errorf("%s, %s: got %v", own, action, review.Warnings())
			}
			audits := effective == "audit" || effective == "dryrun"
			if audits != (review.Annotations()["violations"] == line) {
				t.Errorf("%s, %s: got %v", own, action, review.Annotations())
			}
		}
	}
}

func TestTheParametersReplaceThoseOfTheConstraint(t *testing.T) {
	s := stateOf(t, needsLabel, constraintText("NeedsLabel", "owners", `{parameters: {label: owner}}`))
	for parameters, expected := range map[string]string{
		`{}`:                                 "[owners] web has no label owner",
		`{"parameters": {"label": "other"}}`: "[owners] web has no label other",
		// The default of the schema, because the object is another one.
		`{"parameters": {"count": 5}}`:                            "[owners] web has no label team",
		`{"parameters": {"label": 5}}`:                            "schema validation failed",
		`{"parameters": {"lable": "a"}}`:                          "unknown fields: [spec.parameters.lable]",
		`{"parameters": {"label": "x"}, "action": "warn"}`:        "",
		`{"parameters": {"count": 5000000000}, "action": "deny"}`: "[owners] web has no label team",
	} {
		if _, err := call(t, s, "NeedsLabel/owners", pod, parameters); !strings.Contains(textOf(err), expected) || (err == nil) != (expected == "") {
			t.Errorf("%s: got %v", parameters, err)
		}
	}
}

func TestLinesAreInTheOrderOfGatekeeper(t *testing.T) {
	says := regoTemplate("Says", `violation[{"msg": input.parameters.label}] { true }`)
	s := stateOf(t, says,
		constraintText("Says", "z", `{parameters: {label: "first"}}`), constraintText("Says", "m", `{parameters: {label: "third"}}`),
		constraintText("Says", "a", `{parameters: {label: "third"}}`), constraintText("Says", "b", `{parameters: {label: "a warning"}, enforcementAction: warn}`),
		constraintText("Says", "c", `{parameters: {label: "a scoped one"}, enforcementAction: scoped,
    scopedEnforcementActions: [{action: deny, enforcementPoints: [{name: validation.gatekeeper.sh}]}]}`))
	review, err := call(t, s, "validation", pod, "{}")
	denied(t, err, 403, "[z] first\n[a] third\n[m] third\n[c] a scoped one")
	if !slices.Equal(review.Warnings(), []string{"[b] a warning"}) {
		t.Errorf("got %v", review.Warnings())
	}
}

func TestRequestsThatAreNotReviewed(t *testing.T) {
	config := `
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: {name: config}
spec: {match: [{excludedNamespaces: ["kube-*", shop], processes: [PROCESS]}]}`
	constraint := constraintText("NeedsLabel", "owners", "{parameters: {}}")
	for process, isReviewed := range map[string]bool{"webhook": false, `"*"`: false, "audit": true} {
		s := stateOf(t, needsLabel, constraint, strings.Replace(config, "PROCESS", process, 1))
		for _, policy := range []string{"validation", "NeedsLabel/owners"} {
			if _, err := call(t, s, policy, pod, "{}"); isReviewed != (err != nil) {
				t.Errorf("%s: got %v", process, err)
			}
		}
		// A Namespace counts as itself.
		namespace := strings.NewReplacer(`"kind": "Pod"`, `"kind": "Namespace"`, `"web"`, `"kube-system"`, `, "namespace": "shop"}`, `}`).Replace(pod)
		if _, err := call(t, s, "validation", namespace, "{}"); isReviewed != (err != nil) {
			t.Errorf("%s: got %v", process, err)
		}
	}
	own := strings.Replace(pod, `"uid": "1"`, `"userInfo": {"username": "system:serviceaccount:gatekeeper-system:gatekeeper-admin"}`, 1)
	if _, err := call(t, stateOf(t, needsLabel, constraint), "validation", own, "{}"); err != nil {
		t.Error(err)
	}
}

func TestAnUnknownNamespaceIsAViolation(t *testing.T) {
	s := stateOf(t, needsLabel, constraintText("NeedsLabel", "owners", "{match: {namespaceSelector: {matchLabels: {tier: prod}}}}"))
	review, err := worker.ParseReview([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	denied(t, s.reviewAll(t.Context(), review), 403, "[owners] unable to match constraints: error matching the requested object: web "+
		":failed to run Match criteria: namespace selector for namespace-scoped object but missing Namespace")
}

func TestAMessageThatIsNotAStringIsAnErrorOfTheEngine(t *testing.T) {
	odd := regoTemplate("Odd", `violation[{"msg": 5}] { true }`)
	s := stateOf(t, odd, constraintText("Odd", "deny", "{}"), constraintText("Odd", "warn", "{enforcementAction: warn}"))
	const text = "error reviewing resource web: admission.k8s.gatekeeper.sh: Rego: extracting message binding: .msg accessor error: 5 is of the type json.Number, expected string"
	for _, policy := range []string{"validation", "Odd/deny"} {
		_, err := call(t, s, policy, pod, "{}")
		denied(t, err, 500, text)
	}
	_, err := call(t, s, "Odd/warn", pod, "{}")
	if _, isDenial := err.(*worker.Denial); err == nil || isDenial {
		t.Errorf("got %v", err)
	}
}

func TestADeleteWithoutItsObjectIsAnErrorOfTheEngine(t *testing.T) {
	s := stateOf(t, needsLabel, constraintText("NeedsLabel", "owners", "{}"))
	request := strings.Replace(strings.Replace(pod, "CREATE", "DELETE", 1), `"object":`, `"other":`, 1)
	_, err := call(t, s, "NeedsLabel/owners", request, "{}")
	denied(t, err, 500, "error reviewing resource web: oldObject cannot be nil for DELETE operations")
}
