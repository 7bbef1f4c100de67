package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	configv1alpha1 "github.com/open-policy-agent/gatekeeper/v3/apis/config/v1alpha1"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/path/parser"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/wildcard"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  containers:
  - {name: main, image: "registry.example/team/app:1"}
  - {name: side, image: "registry.example/team/side:1", args: [--a, --b]}
`

// mutator returns the YAML of a mutator.
func mutator(version, kind, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: mutations.gatekeeper.sh/%s\nkind: %s\nmetadata: {name: %s}\nspec:\n  %s\n",
		version, kind, name, strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
}

// onPods is the applyTo of Pods.
const onPods = "applyTo: [{groups: [\"\"], versions: [v1], kinds: [Pod]}]\n"

func assign(name, location, value string) string {
	return mutator("v1", "Assign", name, fmt.Sprintf("%slocation: '%s'\nparameters: {assign: {value: %s}}", onPods, location, value))
}

// policyOf returns the policy of mutators, which have to be valid, and may conflict if any is said to.
func policyOf(t testing.TB, text string) *mutationPolicy {
	t.Helper()
	set, problems := newMutatorSet(documentsOf(t, text), noProviders(t))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return &mutationPolicy{mutators: set, excluder: process.New()}
}

func noProviders(t testing.TB) *providerSet {
	t.Helper()
	set, _ := newProviderSet(nil, &externalData{}, nil)
	return set
}

func TestEachKindOfMutatorInEachVersion(t *testing.T) {
	for _, sample := range []struct{ kind, spec, path, want string }{
		{"Assign", onPods + "location: spec.priorityClassName\nparameters: {assign: {value: low}}", "/spec/priorityClassName", `"low"`},
		{"Assign", onPods + "location: 'spec.containers[name: *].tty'\nparameters: {assign: {value: true}}", "/spec/containers/1/tty", "true"},
		{"Assign", onPods + "location: spec.hostname\nparameters: {assign: {fromMetadata: {field: name}}}", "/spec/hostname", `"web"`},
		{"AssignMetadata", "location: metadata.labels.owner\nparameters: {assign: {value: shop}}", "/metadata/labels/owner", `"shop"`},
		{"ModifySet", onPods + "location: 'spec.containers[name: side].args'\nparameters: {values: {fromList: [--b, --c]}}", "/spec/containers/1/args/2", `"--c"`},
		{"AssignImage", onPods + "location: 'spec.containers[name: main].image'\nparameters: {assignDomain: mirror.example, assignTag: ':2'}", "/spec/containers/0/image", `"mirror.example/team/app:2"`},
	} {
		for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
			if sample.kind == "AssignImage" && version != "v1alpha1" {
				continue // it has no other version
			}
			t.Run(sample.kind+"/"+version, func(t *testing.T) {
				policy := policyOf(t, mutator(version, sample.kind, "sample", sample.spec))
				review := creation(t, webPod).review(t, "")
				if err := policy.review(t.Context(), review); err != nil {
					t.Fatal(err)
				}
				operations, err := review.Changes()
				if err != nil {
					t.Fatal(err)
				}
				index := slices.IndexFunc(patchOf(operations), func(operation map[string]any) bool { return operation["path"] == sample.path })
				if index < 0 || fmt.Sprintf("%#v", operations[index].Value) != sample.want {
					t.Errorf("got %v, expected %s to be %s", operations, sample.path, sample.want)
				}
			})
		}
	}
}

func TestWhatIsNotMutated(t *testing.T) {
	text := assign("class", "spec.priorityClassName", "low") +
		mutator("v1", "AssignMetadata", "owner", "location: metadata.labels.owner\nparameters: {assign: {value: shop}}")
	excluder := process.New()
	excluder.Add([]configv1alpha1.MatchEntry{{
		Processes: []string{"mutation-webhook"}, ExcludedNamespaces: []wildcard.Wildcard{"kube-*"},
	}, {
		Processes: []string{"audit"}, ExcludedNamespaces: []wildcard.Wildcard{"shop"},
	}})
	policy := policyOf(t, text)
	policy.excluder = excluder
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}"
	for name, sample := range map[string]struct {
		object string
		change func(*created)
		want   bool
	}{
		"create":             {webPod, func(*created) {}, true},
		"update":             {webPod, func(request *created) { request.Operation = "UPDATE" }, true},
		"delete":             {webPod, func(request *created) { request.Operation, request.Object = "DELETE", nil }, false},
		"connect":            {webPod, func(request *created) { request.Operation = "CONNECT" }, false},
		"excluded":           {webPod, func(request *created) { request.Namespace = "kube-system" }, false},
		"excluded namespace": {fmt.Sprintf(namespace, "kube-x"), func(*created) {}, false},
		"another namespace":  {fmt.Sprintf(namespace, "shop"), func(*created) {}, true},
		"a mutator":          {assign("a", "spec.x", "1"), func(*created) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			request := creation(t, sample.object)
			sample.change(&request)
			review := request.review(t, "")
			if err := policy.review(t.Context(), review); err != nil {
				t.Fatal(err)
			}
			operations, err := review.Changes()
			if err != nil || (len(operations) > 0) != sample.want {
				t.Errorf("got %v, %v", operations, err)
			}
		})
	}
}

// The namespace of the request is matched, also if the object does not have it, and the patch does not add it.
func TestTheNamespaceIsThatOfTheRequest(t *testing.T) {
	spec := onPods + "match: {namespaces: [shop], namespaceSelector: {matchLabels: {tier: front}}}\nlocation: spec.priorityClassName\nparameters: {assign: {value: low}}"
	policy := policyOf(t, mutator("v1", "Assign", "class", spec))
	request := creation(t, "apiVersion: v1\nkind: Pod\nmetadata: {generateName: web-}\nspec: {}")
	request.Namespace = "shop"
	for tier, count := range map[string]int{"front": 1, "back": 0} {
		review := request.review(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: %s}}", tier))
		if err := policy.review(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if operations, err := review.Changes(); err != nil || len(operations) != count {
			t.Errorf("%s: got %v, %v", tier, operations, err)
		}
	}
	denial := denialOf(t, policy.review(t.Context(), request.review(t, "")))
	if denial.Code != http.StatusInternalServerError || !strings.Contains(denial.Message, "missing Namespace") {
		t.Errorf("got %+v", denial)
	}
}

func TestANameGlobMatchesAGeneratedName(t *testing.T) {
	policy := policyOf(t, mutator("v1", "Assign", "class", onPods+"match: {name: web-*}\nlocation: spec.priorityClassName\nparameters: {assign: {value: low}}"))
	review := creation(t, "apiVersion: v1\nkind: Pod\nmetadata: {generateName: web-, namespace: shop}\nspec: {}").review(t, "")
	if err := policy.review(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if operations, err := review.Changes(); err != nil || len(operations) != 1 {
		t.Errorf("got %v, %v", operations, err)
	}
}

// An object that a mutator's location does not fit is refused with the engine's text.
func TestAnErrorOfAMutatorDeniesWith500(t *testing.T) {
	policy := policyOf(t, assign("deep", "spec.containers.tty", "true"))
	denial := denialOf(t, policy.review(t.Context(), creation(t, webPod).review(t, "")))
	want := "mismatch between path entry (type: object) and received object (type: []interface {})"
	if denial.Code != http.StatusInternalServerError || !strings.Contains(denial.Message, want) ||
		!strings.Contains(denial.Message, "for mutator Assign.mutations.gatekeeper.sh /deep failed for  Pod shop web") {
		t.Errorf("got %+v", denial)
	}
}

// restless is a mutator that never finds the object as it left it.
type restless struct {
	mutationtypes.Mutator
	name  string
	count *int
}

func (r restless) Matches(*mutationtypes.Mutable) (bool, error) { return true, nil }
func (r restless) Mutate(object *mutationtypes.Mutable) (bool, error) {
	*r.count++
	object.Object.SetAnnotations(map[string]string{"round": fmt.Sprint(*r.count)})
	return true, nil
}
func (r restless) ID() mutationtypes.ID               { return mutationtypes.ID{Kind: "Assign", Name: r.name} }
func (r restless) HasDiff(mutationtypes.Mutator) bool { return true }
func (r restless) DeepCopy() mutationtypes.Mutator    { return r }
func (r restless) Path() parser.Path                  { return parser.Path{} }
func (r restless) MustTerminate() bool                { return false }
func (r restless) String() string                     { return r.name }

func TestMutatorsThatDoNotConvergeDenyWith500(t *testing.T) {
	policy := policyOf(t, assign("class", "spec.priorityClassName", "low"))
	if err := policy.mutators.system.Upsert(policy.mutators.running.stopping(restless{name: "restless", count: new(int)})); err != nil {
		t.Fatal(err)
	}
	denial := denialOf(t, policy.review(t.Context(), creation(t, webPod).review(t, "")))
	if denial.Code != http.StatusInternalServerError || !strings.HasPrefix(denial.Message, "mutation not converging: mutation ") ||
		!strings.HasSuffix(denial.Message, " not converging for  Pod shop web") {
		t.Errorf("got %+v", denial)
	}
}

// The documents of a folder may change at any time: each set of documents makes a new policy.
func TestConflictingMutatorsAreLeftOutUntilOneGoes(t *testing.T) {
	list, object := assign("list", "spec.containers[name: main].tty", "true"), assign("object", "spec.containers.tty", "true")
	other := assign("class", "spec.priorityClassName", "low")
	set, problems := newMutatorSet(documentsOf(t, list+object+other), noProviders(t))
	want := []string{
		"text:1: Assign/list is left out, because its location says another schema than Assign/object",
		"text:2: Assign/object is left out, because its location says another schema than Assign/list",
	}
	if len(problems) > 0 || !slices.Equal(set.conflicts, want) || !slices.Equal(set.conflicting, []string{"Assign/list", "Assign/object"}) {
		t.Errorf("got %q, %q, %v", problems, set.conflicts, set.conflicting)
	}
	if text := set.description(); text != "All mutators of Gatekeeper (1), applied until nothing changes any more."+
		" Left out, because their schemas conflict: Assign/list, Assign/object." {
		t.Errorf("got %q", text)
	}
	for documents, count := range map[string]int{list + object + other: 1, list + other: 3} {
		set, _ := newMutatorSet(documentsOf(t, documents), noProviders(t))
		policy := &mutationPolicy{mutators: set, excluder: process.New()}
		review := creation(t, strings.Replace(webPod, "- {name: side", "- {name: main", 1)).review(t, "")
		if err := policy.review(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if operations, err := review.Changes(); err != nil || len(operations) != count {
			t.Errorf("got %v, %v", operations, err)
		}
	}
}

func TestABadMutatorCostsItselfOnly(t *testing.T) {
	bad := assign("class", "spec.priorityClassName", "low") +
		assign("class", "spec.priorityClassName", "high") +
		assign("broken", "spec.containers[", "low") +
		assign("metadata", "metadata.labels.x", "low") +
		mutator("v1", "Assign", "typo", onPods+"location: spec.a\nparameter: {assign: {value: 1}}") +
		mutator("v2", "Assign", "version", onPods+"location: spec.a\nparameters: {assign: {value: 1}}") +
		mutator("v1", "Unknown", "kind", "{}") +
		mutator("v1", "ModifySet", "operation", onPods+"location: spec.a\nparameters: {operation: Merge, values: {fromList: [1]}}") +
		mutator("v1", "Assign", "policy", onPods+"location: spec.a\nparameters: {assign: {externalData: {provider: p, failurePolicy: fail}}}") +
		mutator("v1", "Assign", "source", onPods+"location: spec.a\nparameters: {assign: {externalData: {provider: p, dataSource: Me}}}") +
		mutator("v1", "Assign", "test", onPods+"location: spec.a\nparameters: {pathTests: [{subPath: spec, condition: mustExist}], assign: {value: 1}}") +
		mutator("v1", "Assign", "names", onPods+"location: spec.a\nmatch: {namespaces: [shop, Shop]}\nparameters: {assign: {value: 1}}") +
		mutator("v1", "ModifySet", "selector", onPods+"location: spec.a\nmatch: {labelSelector: {matchExpressions: [{key: a, operator: in}]}}\nparameters: {values: {fromList: [1]}}") +
		mutator("v1alpha1", "AssignImage", "origin", onPods+"location: spec.a\nmatch: {source: original}\nparameters: {assignTag: ':1'}") +
		mutator("v1", "AssignMetadata", "nobody", "location: metadata.labels.x\nparameters: {assign: {externalData: {}}}")
	set, problems := newMutatorSet(documentsOf(t, bad), noProviders(t))
	for index, want := range []string{
		"text:2: Assign class: the same mutator stands in text:1",
		"text:3: Assign broken: invalid location format `spec.containers[`",
		"text:4: Assign metadata: assign metadata can't change metadata",
		`text:5: Assign typo: strict decoding error: unknown field "spec.parameter"`,
		"text:6: Assign version: mutations.gatekeeper.sh/v2 Assign is not known",
		"text:7: Unknown kind: found kind Unknown, expected Assign, AssignMetadata, ModifySet or AssignImage",
		`text:8: ModifySet operation: spec.parameters.operation: found "Merge", expected one of ["merge" "prune"]`,
		`text:9: Assign policy: spec.parameters.assign.externalData.failurePolicy: found "fail", expected one of ["UseDefault" "Ignore" "Fail"]`,
		`text:10: Assign source: spec.parameters.assign.externalData.dataSource: found "Me", expected one of ["ValueAtLocation" "Username"]`,
		`text:11: Assign test: spec.parameters.pathTests[0].condition: found "mustExist", expected one of ["MustExist" "MustNotExist"]`,
		`text:12: Assign names: spec.match.namespaces: found "Shop", expected a name with * at its beginning or end`,
		`text:13: ModifySet selector: spec.match.labelSelector: "in" is not a valid label selector operator`,
		`text:14: AssignImage origin: spec.match.source: found "original", expected one of ["All" "Generated" "Original"]`,
		"text:15: AssignMetadata nobody: spec.parameters.assign.externalData.provider: expected the name of a Provider",
	} {
		if index >= len(problems) || !strings.HasPrefix(problems[index].Error(), want) {
			t.Errorf("got %q, expected %q", texts(problems), want)
		}
	}
	if set.count != 1 || len(problems) != 14 {
		t.Errorf("got %d mutators, %d problems", set.count, len(problems))
	}
}

// Values that are objects are copied into the reviewed object.
func TestAReviewDoesNotChangeTheValuesOfAModifySet(t *testing.T) {
	policy := policyOf(t, mutator("v1", "ModifySet", "add", onPods+"location: spec.tolerations\nparameters: {values: {fromList: [{key: a}]}}"))
	request := creation(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {tolerations: []}")
	for range 2 {
		review := request.review(t, "")
		read, err := requestOf(review)
		if err != nil {
			t.Fatal(err)
		}
		object := documentsOf(t, string(read.Object.Raw))[0].Unstructured
		if _, err := policy.mutators.apply(t.Context(), &mutationtypes.Mutable{Object: object, Operation: "CREATE", Source: "Original"}); err != nil {
			t.Fatal(err)
		}
		added := object.Object["spec"].(map[string]any)["tolerations"].([]any)[0].(map[string]any)
		if !same(t, added, map[string]any{"key": "a"}) {
			t.Fatalf("got %v", added)
		}
		added["key"] = "changed"
	}
}

// chain returns mutators of which each round applies only one more: each requires the label of the one after it.
func chain(length int) string {
	var text strings.Builder
	for index := range length {
		text.WriteString(mutator("v1", "AssignMetadata", fmt.Sprintf("m%05d", index), fmt.Sprintf(
			"match: {labelSelector: {matchLabels: {l%d: x}}}\nlocation: metadata.labels.l%d\nparameters: {assign: {value: x}}", index+1, index)))
	}
	return text.String()
}

func TestAChainConvergesInAsManyRoundsAsItHasMutators(t *testing.T) {
	policy := policyOf(t, chain(30))
	request := creation(t, strings.Replace(webPod, "app: web", "l30: x", 1))
	review := request.review(t, "")
	if err := policy.review(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if labels := patched(t, request, review)["metadata"].(map[string]any)["labels"].(map[string]any); len(labels) != 31 {
		t.Errorf("got %v", labels)
	}
}

// A thousand mutators of a chain are matched a million times, and those that do not converge applied as often.
func TestTheDeadlineOfTheCallEndsTheRounds(t *testing.T) {
	endless := policyOf(t, assign("class", "spec.priorityClassName", "low"))
	for index := range 1000 {
		made := restless{name: fmt.Sprintf("restless%d", index), count: new(int)}
		if err := endless.mutators.system.Upsert(endless.mutators.running.stopping(made)); err != nil {
			t.Fatal(err)
		}
	}
	for name, policy := range map[string]*mutationPolicy{"chain": policyOf(t, chain(1000)), "endless": endless} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			request := creation(t, strings.Replace(webPod, "app: web", "l1000: x", 1))
			if err := policy.review(ctx, request.review(t, "")); err != context.DeadlineExceeded {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Documents that are drawn wrong are problems, and never end the program.
func TestDocumentsWithWrongFieldsAreProblems(t *testing.T) {
	wrong := 0
	for seed := range 1000 {
		d := draw(seed)
		text, err := json.Marshal(d.spoilt(d.mutator("m")))
		if err != nil {
			t.Fatal(err)
		}
		generator, err := json.Marshal(d.spoilt(documentsOf(t, expansionTemplate("t", "Deployment", "Pod", ""))[0].Object))
		if err != nil {
			t.Fatal(err)
		}
		var objects []document
		for _, each := range [][]byte{text, generator} {
			object := &unstructured.Unstructured{}
			if json.Unmarshal(each, &object.Object) == nil {
				objects = append(objects, document{Unstructured: object, Place: "text"})
			}
		}
		mutators, problems := newMutatorSet(objects, noProviders(t))
		_, further := newExpansionSet(objects, mutators)
		wrong += len(problems) + len(further)
		review := creation(t, webPod).review(t, "")
		_ = (&mutationPolicy{mutators: mutators, excluder: noConfig()}).review(t.Context(), review)
	}
	if wrong < 300 {
		t.Errorf("%d problems: the drawn ones say too little", wrong)
	}
}

// spoilt returns a copy of a value in which one part has another type, or is missing.
func (d drawer) spoilt(value any) any {
	odd := choose[any](d, nil, "", "x", 1.0, -1.0, true, []any{}, map[string]any{}, []any{nil}, strings.Repeat("[", 99), "spec.[", 1e300)
	switch value := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(value))
		if len(keys) == 0 {
			return odd
		}
		made, key := maps.Clone(value), choose(d, keys...)
		if _, isLeaf := value[key].(string); isLeaf || d.Intn(4) == 0 {
			if d.Intn(5) == 0 {
				delete(made, key)
			} else if key != "apiVersion" && key != "kind" {
				made[key] = odd
			}
			return made
		}
		made[key] = d.spoilt(value[key])
		return made
	case []any:
		if len(value) == 0 {
			return odd
		}
		made, index := slices.Clone(value), d.Intn(len(value))
		made[index] = d.spoilt(value[index])
		return made
	}
	return odd
}

// A mutator with a rollout is a policy of its own, so that the gateway can leave out its changes alone.
func TestAMutatorWithARolloutIsAPolicyOfItsOwn(t *testing.T) {
	rolledOut := strings.Replace(assign("class", "spec.priorityClassName", "low"), "metadata: {name: class}",
		`metadata: {name: class, annotations: {admission-gateway.io/rollout: "mode: Audit"}}`, 1)
	caller := serve(t, documentsOf(t, assign("host", "spec.hostname", "web")+rolledOut))
	for policy, path := range map[string]string{"mutation": "/spec/hostname", "mutation/Assign/class": "/spec/priorityClassName"} {
		answer := caller.review(policy, creation(t, webPod), "")
		var operations []struct{ Path string }
		if err := json.Unmarshal(answer.Patch, &operations); err != nil || len(operations) != 1 || operations[0].Path != path {
			t.Errorf("%s: got %s, expected one change of %s", policy, answer.Patch, path)
		}
	}
}
