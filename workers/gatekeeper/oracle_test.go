package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"admission-gateway.io/worker"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/frameworks/constraint/pkg/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/drivers/k8scel"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/gator/reader"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
)

// celTemplate has CEL, and Rego that Gatekeeper does not evaluate then.
const celTemplate = `
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: celonly}
spec:
  crd: {spec: {names: {kind: CelOnly}}}
  targets:
    - target: admission.k8s.gatekeeper.sh
      operations: [CREATE, DELETE]
      rego: |
        package policy
        violation[{"msg": "by Rego"}] { true }
      code:
        - engine: K8sNativeValidation
          source:
            validations:
              - expression: variables.anyObject.metadata.?labels.?team.orValue("") != "a"
                messageExpression: '"CEL of " + variables.anyObject.metadata.name'
              - expression: "!has(namespaceObject.metadata.labels) || namespaceObject.metadata.labels.tier != 'prod'"
                message: the namespace is of prod
`

var (
	// regoV1 shows what Rego gets of the request.
	regoV1 = strings.Replace(regoTemplate("Shows", ""), "rego: |\n        package policy\n        ", `code:
        - engine: Rego
          source:
            version: v1
            rego: |
              package policy
              violation contains {"msg": msg, "details": {"a": 1}} if {
                msg := json.marshal([input.review.operation, input.review.object.metadata.name, input.review.namespaceObject, input.parameters])
              }`, 1)
	// sameLabel refuses a label that another object has.
	sameLabel = regoTemplate("SameLabel", `violation[{"msg": msg}] {
  mine := input.review.object.metadata.labels.team
  other := data.inventory.namespace[ns][_][kind][name]
  other.metadata.labels.team == mine
  msg := sprintf("%v %v/%v has the team %v", [kind, ns, name, mine])
}
violation[{"msg": msg}] {
  data.inventory.cluster["v1"].Namespace[name].metadata.labels.tier == "prod"
  msg := sprintf("there is %v", [name])
}`)
	// fails ends with an error of Rego.
	fails = regoTemplate("Fails", `violation[{"msg": msg}] { msg := name(1) }
name(x) = "a" { x > 0 }
name(x) = "b" { x < 2 }`)
	stored = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {tier: prod}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: stored, namespace: other, labels: {team: a}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {team: b}}`
	allTemplates = []string{needsLabel, celTemplate, regoV1, sameLabel, fails}
)

// pick returns one of the choices.
func pick[T any](random *rand.Rand, choices ...T) T { return choices[random.IntN(len(choices))] }

// drawConstraint returns a constraint with a random match and action.
func drawConstraint(random *rand.Rand, index int) string {
	match := map[string]any{}
	add := func(key string, choices ...any) {
		if random.IntN(4) == 0 {
			match[key] = pick(random, choices...)
		}
	}
	add("kinds", []any{map[string]any{"apiGroups": []any{""}, "kinds": []any{"Pod"}}},
		[]any{map[string]any{"apiGroups": []any{"*"}, "kinds": []any{"Namespace", "ConfigMap"}}}, []any{map[string]any{"apiGroups": []any{"apps"}}})
	add("scope", "Cluster", "Namespaced", "*", "odd")
	add("namespaces", []any{"shop"}, []any{"sh*", "kube-system"}, []any{"*other*"})
	add("excludedNamespaces", []any{"shop"}, []any{"*hop"}, []any{"kube-*"})
	add("labelSelector", map[string]any{"matchLabels": map[string]any{"team": "a"}},
		map[string]any{"matchExpressions": []any{map[string]any{"key": "team", "operator": "Exists"}}})
	add("namespaceSelector", map[string]any{"matchLabels": map[string]any{"tier": "prod"}},
		map[string]any{"matchExpressions": []any{map[string]any{"key": "tier", "operator": "NotIn", "values": []any{"prod"}}}})
	add("name", "web", "w*", "other")
	add("source", "Original", "Generated", "All")
	spec := map[string]any{"match": match}
	if action := pick(random, "", "deny", "warn", "dryrun", "odd", "scoped"); action != "" {
		spec["enforcementAction"] = action
	}
	if spec["enforcementAction"] == "scoped" {
		spec["scopedEnforcementActions"] = pick(random,
			[]any{map[string]any{"action": "deny", "enforcementPoints": []any{map[string]any{"name": "*"}}}},
			[]any{map[string]any{"action": "deny", "enforcementPoints": []any{map[string]any{"name": "audit.gatekeeper.sh"}}}},
			[]any{map[string]any{"action": "warn", "enforcementPoints": []any{map[string]any{"name": "validation.gatekeeper.sh"}}},
				map[string]any{"action": "deny", "enforcementPoints": []any{map[string]any{"name": "validation.gatekeeper.sh"}}}})
	}
	kind := pick(random, "NeedsLabel", "CelOnly", "Shows", "SameLabel", "Fails")
	if kind != "CelOnly" && random.IntN(2) == 0 {
		spec["parameters"] = pick(random, map[string]any{}, map[string]any{"label": "owner"}, map[string]any{"count": 3})
	}
	text, _ := json.Marshal(spec)
	return constraintText(kind, fmt.Sprintf("c%d", index), string(text))
}

// drawRequest returns a random AdmissionRequest, and whether its namespace is known.
func drawRequest(random *rand.Rand) (string, bool) {
	object := func() map[string]any {
		labels := pick(random, nil, map[string]any{"team": "a"}, map[string]any{"team": "b", "owner": "c"})
		metadata := map[string]any{"name": pick(random, "web", "db")}
		if labels != nil {
			metadata["labels"] = labels
		}
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
	}
	request := map[string]any{"uid": "1", "userInfo": map[string]any{"username": "jane"}, "name": "web"}
	operation := pick(random, "CREATE", "UPDATE", "DELETE")
	request["operation"] = operation
	kind := map[string]any{"group": "", "version": "v1", "kind": pick(random, "Pod", "Namespace", "ConfigMap", "Node")}
	request["kind"] = kind
	isKnown := true
	for _, each := range []string{"object", "oldObject"} {
		if operation == "CREATE" && each == "oldObject" || operation == "DELETE" && each == "object" {
			continue
		}
		made := object()
		made["kind"] = kind["kind"]
		request[each] = made
		switch kind["kind"] {
		case "Pod", "ConfigMap":
			request["namespace"] = "shop"
			made["metadata"].(map[string]any)["namespace"] = "shop"
		case "Namespace":
			request["namespace"] = made["metadata"].(map[string]any)["name"]
		}
	}
	if random.IntN(4) == 0 {
		isKnown = false
	}
	text, _ := json.Marshal(request)
	return string(text), isKnown
}

// oracle is Gatekeeper's own client: one for CEL and one for Rego. In one client for both, which Gatekeeper has, the driver
// for CEL takes the object of a DELETE away from the review; whether Rego still sees it then depends on the order of a Go map
// (gatekeeper:pkg/drivers/k8scel/driver.go, frameworks:pkg/client/client.go).
type oracle []*client.Client

func newOracle(t testing.TB, objects []document) oracle {
	t.Helper()
	isCEL := func(object document) bool {
		return strings.EqualFold(object.GetName(), "CelOnly") || object.GetKind() == "CelOnly"
	}
	var forCEL, forRego []document
	for _, object := range objects {
		if isCEL(object) {
			forCEL = append(forCEL, object)
		} else {
			forRego = append(forRego, object)
		}
	}
	return oracle{newOracleClient(t, forCEL), newOracleClient(t, forRego)}
}

func newOracleClient(t testing.TB, objects []document) *client.Client {
	t.Helper()
	forCEL, err := k8scel.New()
	if err != nil {
		t.Fatal(err)
	}
	forRego, err := rego.New(rego.Tracing(false), rego.DisableBuiltins("http.send"), rego.Externs("inventory"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.NewClient(client.Targets(&target.K8sValidationTarget{}), client.Driver(forCEL), client.Driver(forRego),
		client.EnforcementPoints(util.WebhookEnforcementPoint, util.AuditEnforcementPoint))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{templatesGroup, constraintsGroup, ""} {
		for _, object := range objects {
			isOther := group == "" && object.GroupVersionKind().Group != templatesGroup && object.GroupVersionKind().Group != constraintsGroup
			switch {
			case group == templatesGroup && object.GroupVersionKind().Group == group:
				read, readErr := reader.ToTemplate(gatekeeperScheme, object.Unstructured)
				if err = readErr; err == nil {
					_, err = made.AddTemplate(t.Context(), read)
				}
			case group == constraintsGroup && object.GroupVersionKind().Group == group:
				_, err = made.AddConstraint(t.Context(), object.DeepCopy())
			case isOther:
				_, err = made.AddData(t.Context(), object.DeepCopy())
			}
			if err != nil {
				t.Fatalf("%s: %v", object.Place, err)
			}
		}
	}
	return made
}

// answer returns the denials and warnings of Gatekeeper's webhook (gatekeeper:pkg/webhook/policy.go), each sorted.
func (o oracle) answer(t testing.TB, text string, namespace *corev1.Namespace) (denials, warnings []string) {
	t.Helper()
	request := &admissionv1.AdmissionRequest{}
	if err := json.Unmarshal([]byte(text), request); err != nil {
		t.Fatal(err)
	}
	if isNamespaceKind(request) {
		request.Namespace = ""
	}
	options := []reviews.ReviewOpt{reviews.EnforcementPoint(util.WebhookEnforcementPoint)}
	review := &target.AugmentedReview{AdmissionRequest: request, Source: mutationtypes.SourceTypeOriginal, IsAdmission: true}
	if request.Namespace != "" && namespace != nil {
		review.Namespace = namespace
		members, _ := util.NamespaceToMap(namespace)
		options = append(options, reviews.Namespace(members))
	}
	var results []*types.Result
	for _, each := range o {
		responses, err := each.Review(t.Context(), review, options...)
		if err != nil {
			t.Fatalf("%v for %s", err, text)
		}
		results = append(results, responses.Results()...)
	}
	return linesOfResults(results)
}

// linesOfResults returns the denials and warnings that Gatekeeper's webhook makes of results, each sorted.
func linesOfResults(results []*types.Result) (denials, warnings []string) {
	for _, result := range results {
		actions := []string{result.EnforcementAction}
		if result.EnforcementAction == "scoped" {
			actions = result.ScopedEnforcementActions
		}
		line := fmt.Sprintf("[%s] %s", result.Constraint.GetName(), result.Msg)
		if slices.Contains(actions, deny) {
			denials = append(denials, line)
		}
		if slices.Contains(actions, warn) {
			warnings = append(warnings, line)
		}
	}
	slices.Sort(denials)
	slices.Sort(warnings)
	return denials, warnings
}

func TestConstraintsAnswerAsGatekeeperOwnClient(t *testing.T) {
	namespace := &corev1.Namespace{}
	if err := json.Unmarshal([]byte(shop), namespace); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		texts := slices.Clone(allTemplates)
		withStored := random.IntN(2) == 0
		if withStored {
			texts = append(texts, stored)
		}
		for index := range 25 {
			texts = append(texts, drawConstraint(random, index))
		}
		objects := parse(t, texts...)
		theirs := newOracle(t, objects)
		random.Shuffle(len(texts), func(a, b int) { texts[a], texts[b] = texts[b], texts[a] })
		s := stateOf(t, texts...)
		for range 15 {
			text, isKnown := drawRequest(random)
			known := namespace
			var options []worker.ReviewOption
			if isKnown {
				options = append(options, worker.WithNamespaceObject([]byte(shop)))
			} else if known = nil; withStored {
				known = nil // the documents have the Namespace
				text = strings.ReplaceAll(text, `"shop"`, `"unknown"`)
			}
			wantDenials, wantWarnings := theirs.answer(t, text, known)
			compare := func(what string, denials, warnings []string) {
				t.Helper()
				slices.Sort(denials)
				slices.Sort(warnings)
				if !slices.Equal(denials, wantDenials) || !slices.Equal(warnings, wantWarnings) {
					t.Errorf("seed %d, %s for %s\n got %q\n     %q\nwant %q\n     %q", seed, what, text, denials, warnings, wantDenials, wantWarnings)
				}
			}
			review, _ := worker.ParseReview([]byte(text), options...)
			compare("validation", denialLines(t, s.reviewAll(t.Context(), review)), review.Warnings())
			var denials, warnings []string
			for index := range s.constraints {
				prepared, _ := s.constraints[index].prepare([]byte("{}"))
				review, _ := worker.ParseReview([]byte(text), append(options, worker.WithPrepared(prepared))...)
				denials = append(denials, denialLines(t, s.policy(s.constraints[index])(t.Context(), review))...)
				warnings = append(warnings, review.Warnings()...)
			}
			compare("one by one", denials, warnings)
		}
	}
}

// denialLines returns the lines of a denial, none for nil.
func denialLines(t testing.TB, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	denial, isDenial := err.(*worker.Denial)
	if !isDenial || denial.Code != 403 || denial.Reason != "Forbidden" {
		t.Fatalf("got %v", err)
	}
	// A line of the tests' own messages begins with its constraint.
	return strings.Split(denial.Message, "\n")
}
