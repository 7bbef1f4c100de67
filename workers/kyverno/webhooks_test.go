package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"admission-gateway.io/worker"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	"github.com/kyverno/kyverno/pkg/clients/dclient"
	"github.com/kyverno/kyverno/pkg/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/event"
	"github.com/kyverno/kyverno/pkg/exceptions"
	imageverifycache "github.com/kyverno/kyverno/pkg/image/verification/cache"
	"github.com/kyverno/kyverno/pkg/metrics"
	"github.com/kyverno/kyverno/pkg/policycache"
	"github.com/kyverno/kyverno/pkg/userinfo"
	reportutils "github.com/kyverno/kyverno/pkg/utils/report"
	"github.com/kyverno/kyverno/pkg/webhooks/handlers"
	"github.com/kyverno/kyverno/pkg/webhooks/resource/mutation"
	"github.com/kyverno/kyverno/pkg/webhooks/resource/validation"
	webhookutils "github.com/kyverno/kyverno/pkg/webhooks/utils"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// webhookPolicies are what users write: each way to say what a failure does, and each kind of rule.
var webhookPolicies = []string{
	rules("enforced", enforce, needsTeam),
	rules("warned", "emitWarning: true", needsTeam,
		"name: broken\nvalidate: {message: refused, deny: {conditions: {any: [{key: \"{{ request.object.metadata.labels.owner }}\", operator: Equals, value: x}]}}}"),
	rules("mixed", "emitWarning: true\n  failurePolicy: Ignore",
		"name: host\nvalidate: {failureAction: Enforce, message: no host, pattern: {spec: {=(hostNetwork): false}}}",
		"name: tty\nvalidate: {failureAction: Audit, message: no tty, pattern: {spec: {containers: [{=(tty): false}]}}}"),
	rules("overridden", "validationFailureAction: Audit\n  validationFailureActionOverrides: [{action: Enforce, namespaces: [sh*]}]",
		"name: owner\nvalidate: {message: needs an owner, pattern: {metadata: {labels: {owner: \"?*\"}}}}"),
	rules("ruled", enforce+"\n  emitWarning: true",
		"name: owner\nvalidate: {failureActionOverrides: [{action: Audit, namespaces: [shop]}, {action: Enforce, namespaces: [bank], namespaceSelector: {matchLabels: {tier: tin}}}], message: needs an owner, pattern: {metadata: {labels: {owner: \"?*\"}}}}"),
	rules("erring", enforce+"\n  failurePolicy: Ignore",
		"name: broken\nvalidate: {message: refused, deny: {conditions: {any: [{key: \"{{ request.object.metadata.labels.owner }}\", operator: Equals, value: x}]}}}"),
	rules("failing", "validationFailureAction: Enforce\n  failurePolicy: Fail",
		"name: broken\npreconditions: {all: [{key: \"{{ request.userInfo.username }}\", operator: Equals, value: bob}]}\n"+
			"validate: {message: refused, deny: {conditions: {any: [{key: \"{{ request.object.metadata.labels.team }}\", operator: Equals, value: x}]}}}"),
	rules("kept", enforce,
		"name: deletes\nmatch: {any: [{resources: {kinds: [Pod, Deployment, ConfigMap], operations: [DELETE]}}]}\n"+
			"validate: {message: \"keep {{ request.oldObject.metadata.name }}\", deny: {conditions: {any: [{key: \"{{ request.oldObject.metadata.labels.keep || 'no' }}\", operator: Equals, value: 'yes'}]}}}"),
	rules("lists", enforce, `name: latest
validate:
  message: no latest
  foreach:
  - list: request.object.spec.containers
    deny: {conditions: {any: [{key: "{{ element.image }}", operator: Equals, value: "*:latest"}]}}`),
	rules("updates", enforce, "name: frozen\npreconditions: {all: [{key: \"{{ request.operation }}\", operator: Equals, value: UPDATE}]}\n"+
		"validate: {message: frozen, deny: {conditions: {any: [{key: \"{{ request.oldObject.metadata.labels.team || '' }}\", operator: NotEquals, value: \"{{ request.object.metadata.labels.team || '' }}\"}]}}}"),
	rules("existing", enforce,
		"name: old\nvalidate: {allowExistingViolations: false, message: needs a tier, pattern: {metadata: {labels: {tier: \"?*\"}}}}",
		"name: new\nvalidate: {allowExistingViolations: true, message: needs a zone, pattern: {metadata: {labels: {zone: \"?*\"}}}}"),
	rules("conditional", enforce+"\n  webhookConfiguration: {failurePolicy: Fail, matchConditions: [{name: notann, expression: \"request.userInfo.username != 'ann'\"}]}", needsTeam),
	rules("pss", enforce, "name: baseline\nvalidate: {podSecurity: {level: baseline, version: latest}}"),
	rules("cel", "emitWarning: true", "name: host\nvalidate: {cel: {expressions: [{expression: \"!has(object.spec.hostNetwork)\", message: no host in CEL}]}}"),
	rules("signed", enforce, "name: images\nverifyImages: [{imageReferences: [\"*\"], required: false, verifyDigest: false, mutateDigest: false, attestors: [{entries: [{keys: {publicKeys: abc}}]}]}]", needsTeam),
	rules("copied", "validationFailureAction: Audit", "name: copy\nskipBackgroundRequests: false\ngenerate: {apiVersion: v1, kind: ConfigMap, name: x, namespace: shop, data: {data: {a: b}}}",
		strings.Replace(needsTeam, "name: team", "name: also", 1)),
	rules("one", enforce+"\n  applyRules: One", needsTeam, "name: owner\nvalidate: {message: needs an owner, pattern: {metadata: {labels: {owner: \"?*\"}}}}"),
	strings.Replace(strings.Replace(rules("own", enforce, needsTeam), "ClusterPolicy", "Policy", 1), "{name: own}", "{name: own, namespace: shop}", 1),
	strings.Replace(rules("roles", enforce, needsTeam), "    name: team", "    exclude: {any: [{clusterRoles: [admin]}, {subjects: [{kind: User, name: cid}]}]}\n    name: team", 1),
	strings.Replace(rules("labelled", enforce, needsTeam), "kinds: [Pod]", "kinds: [Pod, ConfigMap], namespaceSelector: {matchLabels: {tier: gold}}", 1),
	strings.Replace(rules("scaled", enforce, "name: scale\nvalidate: {message: at most 3, pattern: {spec: {replicas: \"<=3\"}}}"), "kinds: [Pod]", "kinds: [Deployment/scale]", 1),
	strings.Replace(rules("stated", enforce, needsTeam), "kinds: [Pod]", "kinds: [Pod/status, Namespace]", 1),
	strings.Replace(rules("every", "background: true", needsTeam), "kinds: [Pod]", "kinds: [\"*\"]", 1),
}

// webhookChanges are mutate rules, which change different fields: Kyverno evaluates policies in random order.
var webhookChanges = []string{
	rules("stamp", "background: false", "name: stamp\nmutate: {patchStrategicMerge: {metadata: {annotations: {stamp: \"{{ request.userInfo.username }}\"}}}}"),
	rules("noisy", "emitWarning: true\n  failurePolicy: Ignore", "name: pull\nmutate: {foreach: [{list: request.object.spec.containers, patchStrategicMerge: {spec: {containers: [{name: \"{{ element.name }}\", imagePullPolicy: Always}]}}}]}"),
	rules("patched", "failurePolicy: Ignore", "name: dns\nmutate: {patchesJson6902: \"- {op: add, path: /spec/dnsPolicy, value: Default}\"}",
		"name: second\nmutate: {patchStrategicMerge: {spec: {schedulerName: \"{{ request.object.spec.dnsPolicy }}\"}}}"),
	rules("lost", "failurePolicy: Ignore", "name: lost\nmutate: {patchStrategicMerge: {metadata: {annotations: {lost: \"{{ request.object.metadata.labels.owner }}\"}}}}"),
	rules("needed", "failurePolicy: Fail", "name: needed\nmutate: {patchStrategicMerge: {metadata: {annotations: {needed: \"{{ request.object.metadata.labels.team }}\"}}}}"),
	// Variants of a rule for pod controllers lose its targets at Kyverno, and change the object of the request.
	strings.Replace(rules("targets", "failurePolicy: Ignore", "name: existing\nmutate: {targets: [{apiVersion: v1, kind: ConfigMap, name: x, namespace: shop}], patchStrategicMerge: {data: {a: b}}}",
		"name: own\nmutate: {patchStrategicMerge: {metadata: {annotations: {own: \"yes\"}}}}"), "kinds: [Pod]", "kinds: [Pod], names: [\"*\"]", 1),
	strings.Replace(strings.Replace(rules("local", "failurePolicy: Ignore", "name: local\nmutate: {patchStrategicMerge: {metadata: {annotations: {local: \"yes\"}}}}"), "ClusterPolicy", "Policy", 1), "{name: local}", "{name: local, namespace: shop}", 1),
	strings.Replace(rules("golden", "failurePolicy: Ignore", "name: golden\nmutate: {patchStrategicMerge: {metadata: {annotations: {golden: \"yes\"}}}}"), "kinds: [Pod]", "kinds: [Pod, ConfigMap], namespaceSelector: {matchLabels: {tier: gold}}", 1),
}

const webhookObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {tier: tin}}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank, labels: {tier: gold}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: admins}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: bob, apiGroup: rbac.authorization.k8s.io}]`

// kindOf has the kinds of the requests by resource.
var kindOf = map[string]schema.GroupVersionKind{
	"pods": {Version: "v1", Kind: "Pod"}, "configmaps": {Version: "v1", Kind: "ConfigMap"}, "namespaces": {Version: "v1", Kind: "Namespace"},
	"deployments": {Group: "apps", Version: "v1", Kind: "Deployment"}, "cronjobs": {Group: "batch", Version: "v1", Kind: "CronJob"},
}

// subresourceOf has the subresources of the requests, with the kind of their object.
var subresourceOf = map[string]map[string]schema.GroupVersionKind{
	"pods":        {"status": kindOf["pods"], "ephemeralcontainers": kindOf["pods"]},
	"deployments": {"scale": {Group: "autoscaling", Version: "v1", Kind: "Scale"}, "status": kindOf["deployments"]},
}

// finder finds kinds as a cluster.
type finder struct{}

func (finder) FindResources(group, version, kind, subresource string) (map[dclient.TopLevelApiDescription]metav1.APIResource, error) {
	found := make(map[dclient.TopLevelApiDescription]metav1.APIResource)
	for resource, each := range kindOf {
		if kind != "*" && kind != each.Kind {
			continue
		}
		if _, has := subresourceOf[resource][subresource]; subresource == "" || has {
			found[dclient.TopLevelApiDescription{
				GroupVersion: each.GroupVersion(), Kind: each.Kind, Resource: resource, SubResource: subresource,
			}] = metav1.APIResource{}
		}
	}
	return found, nil
}

// kyvernoWebhooks are Kyverno's own webhooks: one for policies that fail, and one for those that are ignored.
type kyvernoWebhooks struct {
	testing.TB
	state      *state
	policies   policycache.Cache
	namespaces corev1listers.NamespaceLister
	engine     engineapi.Engine
	builder    webhookutils.PolicyContextBuilder
	metrics    *metrics.MetricsConfig
}

func newKyvernoWebhooks(t testing.TB, s *state, texts []string) *kyvernoWebhooks {
	// The webhooks ask it, although they report nothing.
	_ = reportutils.NewReportingConfig(nil)
	isCluster := true
	made := &kyvernoWebhooks{
		TB: t, state: s, policies: policycache.NewCache(), metrics: metrics.NewFakeMetricsConfig(), builder: webhookutils.NewPolicyContextBuilder(configuration, jmes),
		engine: engine.NewEngine(configuration, jmes, s.data, nil, imageverifycache.DisabledImageVerifyCache(),
			factories.DefaultContextLoaderFactory(s.data), exceptions.New(s.exceptions), &isCluster),
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, object := range objectsOf(t, webhookObjects) {
		if object.GetKind() == "Namespace" {
			if err := indexer.Add(s.data.known(object.GetName())); err != nil {
				t.Fatal(err)
			}
		}
	}
	made.namespaces = corev1listers.NewNamespaceLister(indexer)
	for _, object := range objectsOf(t, texts...) {
		policy, err := decodePolicy(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := made.policies.Set(key(policy.GetNamespace(), policy.GetName()), policy, finder{}); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

// decision is what a user sees.
type decision struct {
	denied   []string
	warnings []string
	object   any
}

func (k *kyvernoWebhooks) request(asked *admissionv1.AdmissionRequest) handlers.AdmissionRequest {
	roles, clusterRoles, err := userinfo.GetRoleRef(k.state.roleBindings, k.state.clusterRoleBindings, asked.UserInfo, asked.Namespace)
	if err != nil {
		k.Fatal(err)
	}
	return handlers.AdmissionRequest{AdmissionRequest: *asked, Roles: roles, ClusterRoles: clusterRoles, GroupVersionKind: kindOf[asked.Resource.Resource]}
}

// find returns the policies of a webhook for the request (kyverno:pkg/webhooks/resource/handlers.go).
func (k *kyvernoWebhooks) find(of policycache.PolicyType, asked *admissionv1.AdmissionRequest, failurePolicy kyvernov1.FailurePolicyType) []kyvernov1.PolicyInterface {
	var namespace *corev1.Namespace
	if asked.Namespace != "" {
		namespace, _ = k.namespaces.Get(asked.Namespace)
	}
	found := k.policies.GetPolicies(of, schema.GroupVersionResource(asked.Resource), asked.SubResource, namespace)
	// Kyverno's order is random, and policies after an error do nothing.
	slices.SortFunc(found, func(a, b kyvernov1.PolicyInterface) int {
		isLast := func(policy kyvernov1.PolicyInterface) int { return strings.Count(policy.GetName(), "lost") }
		return cmp.Or(isLast(a)-isLast(b), strings.Compare(a.GetName(), b.GetName()))
	})
	return slices.DeleteFunc(found, func(policy kyvernov1.PolicyInterface) bool {
		return policy.GetSpec().GetFailurePolicy(context.Background()) != failurePolicy
	})
}

var bothFailurePolicies = []kyvernov1.FailurePolicyType{kyvernov1.Ignore, kyvernov1.Fail}

func (k *kyvernoWebhooks) validate(asked *admissionv1.AdmissionRequest) (made decision) {
	handler := validation.NewValidationHandler(
		logr.Discard(), nil, k.engine, k.policies, k.builder, event.NewFake(), false, k.metrics, k.namespaces)
	for _, each := range bothFailurePolicies {
		allowed, message, warnings, _ := handler.HandleValidationEnforce(k.Context(), k.request(asked),
			k.find(policycache.ValidateEnforce, asked, each), k.find(policycache.ValidateAuditWarn, asked, each), time.Now())
		if !allowed {
			made.denied = append(made.denied, linesOf(message)...)
		}
		made.warnings = append(made.warnings, warnings...)
	}
	return made.sorted()
}

func (k *kyvernoWebhooks) mutate(asked *admissionv1.AdmissionRequest) (made decision) {
	handler := mutation.NewMutationHandler(
		logr.Discard(), nil, k.engine, event.NewFake(), k.namespaces, k.metrics, false)
	asked = asked.DeepCopy()
	for _, each := range bothFailurePolicies {
		policies := k.find(policycache.Mutate, asked, each)
		request := k.request(asked)
		made2, err := k.builder.Build(request.AdmissionRequest, request.Roles, request.ClusterRoles, request.GroupVersionKind)
		if err != nil {
			k.Fatal(err)
		}
		patches, warnings, err := handler.HandleMutation(k.Context(), request, policies, made2, time.Now(), configuration)
		if err != nil {
			return decision{denied: linesOf(err.Error())}
		}
		made.warnings = append(made.warnings, warnings...)
		if len(patches) > 0 {
			asked.Object.Raw = patched(k, asked.Object.Raw, patches)
		}
	}
	made.object = decoded(k, asked.Object.Raw)
	return made.sorted()
}

func (d decision) sorted() decision {
	slices.Sort(d.denied)
	d.denied = slices.Compact(d.denied)
	slices.Sort(d.warnings)
	return d
}

func linesOf(message string) (lines []string) {
	for _, line := range strings.Split(message, "\n") {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func patched(t testing.TB, object, patches []byte) []byte {
	operations, err := jsonpatch.DecodePatch(patches)
	if err != nil {
		t.Fatal(err)
	}
	if object, err = operations.Apply(object); err != nil {
		t.Fatalf("%v: %s of %s", err, patches, object)
	}
	return object
}

func decoded(t testing.TB, text []byte) (value any) {
	if len(text) > 0 {
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
	}
	return value
}

// answer returns what the worker's policy of all rules answers.
func (s *state) answer(t testing.TB, policy string, asked *admissionv1.AdmissionRequest) (made decision) {
	text, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	review, err := worker.ParseReview(text)
	if err != nil {
		t.Fatal(err)
	}
	function := s.validateAll
	if policy == mutationName {
		function = s.mutateAll
	}
	var denial *worker.Denial
	if err := function(t.Context(), review); errors.As(err, &denial) {
		made.denied = linesOf(denial.Message)
	} else if err != nil {
		t.Fatalf("%s: %v of %s", policy, err, text)
	}
	made.warnings = slices.Clone(review.Warnings())
	if policy == mutationName && len(made.denied) == 0 {
		made.object = decoded(t, asked.Object.Raw)
		if operations, err := review.Changes(); err != nil {
			t.Fatal(err)
		} else if len(operations) > 0 {
			patches := make([]map[string]any, len(operations))
			for index, each := range operations {
				patches[index] = map[string]any{"op": each.Op, "path": each.Path}
				if each.Op != "remove" {
					patches[index]["value"] = each.Value
				}
			}
			text, err := json.Marshal(patches)
			if err != nil {
				t.Fatal(err)
			}
			made.object = decoded(t, patched(t, asked.Object.Raw, text))
		}
	}
	return made.sorted()
}

// blocks reports whether a rule alone keeps the request out: it denies, or it fails and its policy has the failurePolicy Fail.
func (s *state) blocks(t testing.TB, asked *admissionv1.AdmissionRequest) bool {
	text, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	for index := range s.served {
		one := &s.served[index]
		if one.err != nil || one.mutating {
			continue
		}
		review, err := worker.ParseReview(text, worker.WithPrepared(""))
		if err != nil {
			t.Fatal(err)
		}
		err = s.validate(one)(t.Context(), review)
		var denial *worker.Denial
		if errors.As(err, &denial) || err != nil && one.policy.GetSpec().GetFailurePolicy(t.Context()) == kyvernov1.Fail {
			return true
		}
	}
	return false
}

// drawnRequest draws a request of the API server.
func drawnRequest(random *rand.Rand) *admissionv1.AdmissionRequest {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	resource := pick("pods", "pods", "pods", "deployments", "cronjobs", "configmaps", "namespaces")
	kind := kindOf[resource]
	asked := &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Operation(pick("CREATE", "CREATE", "UPDATE", "UPDATE", "DELETE")), Name: "web", Namespace: pick("shop", "bank"),
		Resource: metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource},
	}
	asked.UserInfo.Username = pick("ann", "bob", "cid")
	if subresources := subresourceOf[resource]; subresources != nil && random.IntN(4) == 0 {
		asked.Operation, asked.SubResource = admissionv1.Update, pick("status", "status", "scale", "ephemeralcontainers")
		if _, has := subresources[asked.SubResource]; !has {
			asked.SubResource = "status"
		}
		kind = subresources[asked.SubResource]
	}
	if resource == "namespaces" {
		asked.Name = asked.Namespace
	}
	if random.IntN(4) == 0 {
		isDryRun := true
		asked.DryRun = &isDryRun
	}
	asked.Kind = metav1.GroupVersionKind(kind)
	asked.RequestKind, asked.RequestResource, asked.RequestSubResource = &asked.Kind, &asked.Resource, asked.SubResource
	draw := func() []byte { return drawnObject(random, kind, asked) }
	if asked.Operation != admissionv1.Delete {
		asked.Object.Raw = draw()
	}
	if asked.Operation != admissionv1.Create {
		asked.OldObject.Raw = draw()
	}
	return asked
}

func drawnObject(random *rand.Rand, kind schema.GroupVersionKind, asked *admissionv1.AdmissionRequest) []byte {
	labels := make(map[string]any)
	for _, name := range []string{"team", "owner", "tier", "zone", "keep"} {
		if random.IntN(2) == 0 {
			labels[name] = []string{"yes", "x"}[random.IntN(2)]
		}
	}
	metadata := map[string]any{"name": asked.Name, "uid": "2"}
	if kind.Kind != "Namespace" {
		metadata["namespace"] = asked.Namespace
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	containers := []any{map[string]any{"name": "a", "image": []string{"a:1", "a:latest"}[random.IntN(2)], "tty": random.IntN(2) == 0}}
	spec := map[string]any{"containers": containers}
	if random.IntN(3) == 0 {
		spec["hostNetwork"] = random.IntN(2) == 0
	}
	template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec}
	object := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": metadata}
	switch kind.Kind {
	case "Pod":
		object["spec"] = spec
	case "Deployment":
		object["spec"] = map[string]any{"replicas": random.IntN(6), "template": template}
	case "CronJob":
		object["spec"] = map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": template}}}
	case "Scale":
		object["spec"] = map[string]any{"replicas": random.IntN(6)}
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return text
}

// `validation` and `mutation` answer as Kyverno's own webhooks, one after the other, to drawn requests with drawn policies, and the rules
// alone keep out the same requests.
func TestKyvernosWebhooksAnswerAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	answers, denials, changes := 0, 0, 0
	for range 40 {
		var texts []string
		for _, text := range slices.Concat(webhookPolicies, webhookChanges) {
			if random.IntN(4) == 0 {
				texts = append(texts, text)
			}
		}
		s, _ := stateOf(t, append([]string{strings.TrimPrefix(webhookObjects, "\n")}, texts...)...)
		webhooks := newKyvernoWebhooks(t, s, texts)
		for range 20 {
			asked := drawnRequest(random)
			wanted := map[string]decision{validationName: webhooks.validate(asked)}
			// Kyverno registers mutate rules for objects that stay.
			if asked.Operation != admissionv1.Delete {
				wanted[mutationName] = webhooks.mutate(asked)
			}
			// The gateway calls no rule about Pods for ephemeral containers that Kyverno does not register for them.
			if blocks := s.blocks(t, asked); blocks != (len(wanted[validationName].denied) > 0) && asked.SubResource != "ephemeralcontainers" {
				text, _ := json.Marshal(asked)
				t.Fatalf("the rules alone block: %v; expected\n%s\nfor %s\nwith\n%s", blocks, wanted[validationName], text, strings.Join(texts, "\n---\n"))
			}
			for name, want := range wanted {
				got := s.answer(t, name, asked)
				answers++
				if len(want.denied) > 0 {
					denials++
				}
				if want.object != nil && !reflect.DeepEqual(want.object, decoded(t, asked.Object.Raw)) {
					changes++
				}
				if !reflect.DeepEqual(got, want) {
					text, _ := json.Marshal(asked)
					t.Fatalf("%s: got\n%s\nexpected\n%s\nfor %s\nwith\n%s", name, got, want, text, strings.Join(texts, "\n---\n"))
				}
			}
		}
	}
	if denials < answers/20 || changes < answers/20 {
		t.Errorf("of %d answers %d are denials and %d changes: too few to compare", answers, denials, changes)
	}
}

func (d decision) String() string {
	return fmt.Sprintf("denied %q\nwarnings %q\nobject %v", d.denied, d.warnings, d.object)
}
