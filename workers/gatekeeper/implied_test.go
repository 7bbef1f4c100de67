package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"admission-gateway.io/worker"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/frameworks/constraint/pkg/types"
	expansionunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/expansion/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/expansion"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// drawGenerators returns ExpansionTemplates from Deployments to Pods, also by ReplicaSets, and mutators of what they generate.
func drawGenerators(random *rand.Rand) []string {
	var texts []string
	for index, kinds := range [][2]string{{"Deployment", "Pod"}, {"Deployment", "ReplicaSet"}, {"ReplicaSet", "Pod"}} {
		if random.IntN(3) == 0 {
			continue
		}
		action := pick(random, "", "", "deny", "warn", "dryrun", "odd")
		texts = append(texts, expansionTemplate(fmt.Sprintf("t%d", index), kinds[0], kinds[1], "  enforcementAction: \""+action+"\"\n"))
	}
	for index, source := range []string{"Original", "Generated", "All"} {
		if random.IntN(2) == 0 {
			texts = append(texts, mutator("v1", "AssignMetadata", fmt.Sprintf("m%d", index), fmt.Sprintf(
				"match: {source: %s, kinds: [{kinds: [%s]}]}\nlocation: metadata.labels.%s\nparameters: {assign: {value: %s}}",
				source, pick(random, "Pod", "ReplicaSet"), pick(random, "team", "owner"), pick(random, "a", "b"))))
		}
	}
	return texts
}

// drawGenerated returns the request of a generator.
func drawGenerated(random *rand.Rand) string {
	labelled := func() map[string]any {
		return map[string]any{"labels": pick(random, map[string]any{}, map[string]any{"team": "a"}, map[string]any{"team": "b"})}
	}
	object := func() map[string]any {
		metadata := labelled()
		metadata["name"], metadata["namespace"] = "web", "shop"
		pod := map[string]any{"metadata": labelled(), "spec": map[string]any{}}
		// The template of a Deployment is that of a ReplicaSet too.
		pod["spec"].(map[string]any)["template"] = map[string]any{"metadata": labelled(), "spec": map[string]any{}}
		return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": map[string]any{"template": pod}}
	}
	operation := pick(random, "CREATE", "UPDATE", "DELETE")
	request := map[string]any{
		"uid": "1", "operation": operation, "namespace": "shop", "name": "web", "userInfo": map[string]any{"username": "jane"},
		"kind": map[string]any{"group": "apps", "version": "v1", "kind": "Deployment"},
	}
	if operation != "DELETE" {
		request["object"] = object()
	}
	if operation != "CREATE" {
		request["oldObject"] = object()
	}
	text, _ := json.Marshal(request)
	return string(text)
}

// implied is the oracle with Gatekeeper's own systems of expansion and mutation (gatekeeper:pkg/webhook/policy.go).
type implied struct {
	oracle
	expansion *expansion.System
}

func newImplied(t testing.TB, constraints, generators []document) implied {
	t.Helper()
	var mutators []document
	for _, object := range generators {
		if object.GroupVersionKind().Group == mutationsGroup {
			mutators = append(mutators, object)
		}
	}
	made := implied{newOracle(t, constraints), expansion.NewSystem(engineOf(t, mutators, nil))}
	for _, object := range generators {
		if object.GroupVersionKind().Group != expansionGroup {
			continue
		}
		read := &expansionunversioned.ExpansionTemplate{}
		if err := convert(object, read); err != nil {
			t.Fatal(err)
		}
		if err := made.expansion.UpsertTemplate(read); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

// answer returns the denials and warnings of Gatekeeper's webhook, each sorted.
func (i implied) answer(t testing.TB, text string, namespace *corev1.Namespace) (denials, warnings []string) {
	t.Helper()
	request := &admissionv1.AdmissionRequest{}
	if err := json.Unmarshal([]byte(text), request); err != nil {
		t.Fatal(err)
	}
	raw := request.Object.Raw
	if request.Operation == admissionv1.Delete {
		raw = request.OldObject.Raw
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	resultants, err := i.expansion.Expand(&mutationtypes.Mutable{Object: object, Namespace: namespace, Username: "jane"})
	if err != nil {
		t.Fatal(err)
	}
	denials, warnings = i.oracle.answer(t, text, namespace)
	members, _ := util.NamespaceToMap(namespace)
	for _, resultant := range resultants {
		for _, each := range i.oracle {
			responses, err := each.Review(t.Context(), &target.AugmentedUnstructured{
				Object: *resultant.Obj, Namespace: namespace, Operation: request.Operation, Source: mutationtypes.SourceTypeGenerated,
			}, reviews.EnforcementPoint(util.WebhookEnforcementPoint), reviews.Namespace(members))
			if err != nil {
				t.Fatal(err)
			}
			expansion.OverrideEnforcementAction(resultant.EnforcementAction, responses)
			all := types.NewResponses()
			expansion.AggregateResponses(resultant.TemplateName, all, responses)
			implied, impliedWarnings := linesOfResults(all.Results())
			denials, warnings = append(denials, implied...), append(warnings, impliedWarnings...)
		}
	}
	slices.Sort(denials)
	slices.Sort(warnings)
	return denials, warnings
}

func TestWhatIsGeneratedIsReviewedAsByGatekeeperItself(t *testing.T) {
	namespace := &corev1.Namespace{}
	if err := json.Unmarshal([]byte(shop), namespace); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 2))
		constraints := slices.Clone(allTemplates)
		for index := range 15 {
			constraints = append(constraints, drawConstraint(random, index))
		}
		generators := drawGenerators(random)
		theirs := newImplied(t, parse(t, constraints...), parse(t, generators...))
		s := stateOf(t, append(generators, constraints...)...)
		for range 12 {
			text := drawGenerated(random)
			wantDenials, wantWarnings := theirs.answer(t, text, namespace)
			lines += len(wantDenials) + len(wantWarnings)
			compare := func(what string, denials, warnings []string) {
				t.Helper()
				slices.Sort(denials)
				slices.Sort(warnings)
				if !slices.Equal(denials, wantDenials) || !slices.Equal(warnings, wantWarnings) {
					t.Errorf("seed %d, %s for %s\n got %q\n     %q\nwant %q\n     %q", seed, what, text, denials, warnings, wantDenials, wantWarnings)
				}
			}
			review := parseReview(t, text)
			compare("validation", denialLines(t, s.reviewAll(t.Context(), review)), review.Warnings())
			var denials, warnings []string
			for index := range s.constraints {
				prepared, _ := s.constraints[index].prepare([]byte("{}"))
				review := parseReview(t, text, worker.WithPrepared(prepared))
				denials = append(denials, denialLines(t, s.policy(s.constraints[index])(t.Context(), review))...)
				warnings = append(warnings, review.Warnings()...)
			}
			compare("one by one", denials, warnings)
		}
	}
	if lines < 500 {
		t.Errorf("%d lines compared: the drawn ones say too little", lines)
	}
}
