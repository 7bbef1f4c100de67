// Kyverno's own policy engines and webhook handlers, as a filter: a JSON object a line.
//
// In: a case. Its policies are of one family: ValidatingPolicy and NamespacedValidatingPolicy, MutatingPolicy and
// NamespacedMutatingPolicy, or ClusterPolicy and Policy. Out: what each webhook that has a policy answers, in the
// order of the webhooks; what became of each policy and each of its variants; and after mutations, the object.
// Kyverno takes its policies in a random order. Here they come by name, so that answers repeat.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/julienschmidt/httprouter"
	policiesv1beta1 "github.com/kyverno/api/api/policies.kyverno.io/v1beta1"
	celautogen "github.com/kyverno/kyverno/pkg/cel/autogen"
	celengine "github.com/kyverno/kyverno/pkg/cel/engine"
	"github.com/kyverno/kyverno/pkg/cel/libs"
	"github.com/kyverno/kyverno/pkg/cel/matching"
	mpolcompiler "github.com/kyverno/kyverno/pkg/cel/policies/mpol/compiler"
	mpolengine "github.com/kyverno/kyverno/pkg/cel/policies/mpol/engine"
	vpolcompiler "github.com/kyverno/kyverno/pkg/cel/policies/vpol/compiler"
	vpolengine "github.com/kyverno/kyverno/pkg/cel/policies/vpol/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/event"
	"github.com/kyverno/kyverno/pkg/userinfo"
	reportutils "github.com/kyverno/kyverno/pkg/utils/report"
	"github.com/kyverno/kyverno/pkg/webhooks/handlers"
	"github.com/kyverno/kyverno/pkg/webhooks/resource/mpol"
	"github.com/kyverno/kyverno/pkg/webhooks/resource/vpol"
	"github.com/kyverno/kyverno/pkg/webhooks/updaterequest"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kubectl-validate/pkg/openapiclient"
)

type question struct {
	Policies   []json.RawMessage            `json:"policies"`
	Exceptions []json.RawMessage            `json:"exceptions"`
	Request    admissionv1.AdmissionRequest `json:"request"`
	Namespaces []*corev1.Namespace          `json:"namespaces"`
	// Bindings are RoleBindings and ClusterRoleBindings.
	Bindings []json.RawMessage `json:"bindings"`
	// Objects are what policies find in the cluster, with their resources.
	Objects []struct {
		Resource string                    `json:"resource"`
		Object   unstructured.Unstructured `json:"object"`
	} `json:"objects"`
}

type answer struct {
	// Refused is why the policies do not compile.
	Refused  string          `json:"refused,omitempty"`
	Webhooks []webhook       `json:"webhooks,omitempty"`
	Policies []outcome       `json:"policies,omitempty"`
	Object   json.RawMessage `json:"object,omitempty"`
}

type webhook struct {
	Name     string   `json:"name"`
	Allowed  bool     `json:"allowed"`
	Message  string   `json:"message,omitempty"`
	Code     int32    `json:"code,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// outcome is of a policy, or of a variant of it for the resources that it matches.
type outcome struct {
	Policy string `json:"policy"`
	For    string `json:"for,omitempty"`
	Rules  []rule `json:"rules,omitempty"`
}

type rule struct {
	Name       string            `json:"name,omitempty"`
	Status     string            `json:"status"`
	Message    string            `json:"message,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
}

var converter = mpolcompiler.NewStaticTypeConverterManager(openapiclient.NewHardcodedBuiltins("1.32"))

func main() {
	quiet := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(quiet)
	_ = quiet.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	reportutils.NewReportingConfig(nil)
	celautogen.BareNameResolver = celautogen.RESTMapperBareNameResolver(restMapper())
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := encoder.Encode(answered(&asked)); err != nil {
			os.Exit(1)
		}
		out.Flush()
	}
}

// restMapper knows the resources of the API server, as discovery does.
func restMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for path, kind := range served {
		if parts := strings.Split(path, "/"); len(parts) == 3 && parts[1] == "v1" {
			version := schema.GroupVersion{Group: parts[0], Version: parts[1]}
			singular := version.WithResource(strings.ToLower(kind))
			mapper.AddSpecific(version.WithKind(kind), version.WithResource(parts[2]), singular, meta.RESTScopeNamespace)
		}
	}
	return mapper
}

func answered(asked *question) (got answer) {
	defer func() {
		if problem := recover(); problem != nil {
			got = answer{Refused: fmt.Sprintf("panic: %v", problem)}
		}
	}()
	var err error
	switch kind := kindOf(asked.Policies[0]); kind {
	case "ValidatingPolicy", "NamespacedValidatingPolicy":
		got, err = validated(asked)
	case "MutatingPolicy", "NamespacedMutatingPolicy":
		got, err = mutated(asked)
	case "ClusterPolicy", "Policy":
		got, err = validatedByRules(asked)
	default:
		err = fmt.Errorf("unknown kind %q", kind)
	}
	if err != nil {
		return answer{Refused: err.Error()}
	}
	return got
}

func kindOf(document json.RawMessage) string {
	var head struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(document, &head); err != nil {
		panic(err)
	}
	return head.Kind
}

// parsed returns the documents as policies by name; made gives an empty one of a kind.
func parsed[T interface{ GetName() string }](documents []json.RawMessage, made func(kind string) T) []T {
	var found []T
	for _, each := range documents {
		one := made(kindOf(each))
		if err := json.Unmarshal(each, one); err != nil {
			panic(err)
		}
		found = append(found, one)
	}
	slices.SortStableFunc(found, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return found
}

func (asked *question) namespace(name string) *corev1.Namespace {
	for _, each := range asked.Namespaces {
		if each.Name == name {
			return each
		}
	}
	return nil
}

func (asked *question) context() libs.Context {
	fake := libs.NewFakeContextProvider()
	for _, each := range asked.Objects {
		kind := each.Object.GroupVersionKind()
		resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: each.Resource}
		if err := fake.AddResource(resource, &each.Object); err != nil {
			panic(err)
		}
	}
	// Policies take it from here when they are compiled.
	libs.LibraryContext = fake
	return fake
}

func (asked *question) celExceptions() []*policiesv1beta1.PolicyException {
	return parsed(asked.Exceptions, func(string) *policiesv1beta1.PolicyException {
		return &policiesv1beta1.PolicyException{}
	})
}

func (asked *question) received(request admissionv1.AdmissionRequest) handlers.AdmissionRequest {
	var within bindings[*rbacv1.RoleBinding]
	var everywhere bindings[*rbacv1.ClusterRoleBinding]
	for _, each := range asked.Bindings {
		if kindOf(each) == "RoleBinding" {
			within = append(within, parsed([]json.RawMessage{each}, func(string) *rbacv1.RoleBinding {
				return &rbacv1.RoleBinding{}
			})...)
			continue
		}
		everywhere = append(everywhere, parsed([]json.RawMessage{each}, func(string) *rbacv1.ClusterRoleBinding {
			return &rbacv1.ClusterRoleBinding{}
		})...)
	}
	// As pkg/webhooks/handlers/enrich.go does.
	roles, clusterRoles, err := userinfo.GetRoleRef(within, everywhere, request.UserInfo, request.Namespace)
	if err != nil {
		panic(err)
	}
	return handlers.AdmissionRequest{
		AdmissionRequest: request,
		Roles:            roles,
		ClusterRoles:     clusterRoles,
		GroupVersionKind: schema.GroupVersionKind(request.Kind),
	}
}

type bindings[T any] []T

func (b bindings[T]) List(labels.Selector) ([]T, error) { return b, nil }

// -- ValidatingPolicy -----------------------------------------------------------------------------

func validated(asked *question) (answer, error) {
	known := asked.context()
	policies := parsed(asked.Policies, func(kind string) policiesv1beta1.ValidatingPolicyLike {
		if kind == "NamespacedValidatingPolicy" {
			return &policiesv1beta1.NamespacedValidatingPolicy{}
		}
		return &policiesv1beta1.ValidatingPolicy{}
	})
	provider, err := vpolengine.NewProvider(vpolcompiler.NewCompiler(), policies, asked.celExceptions())
	if err != nil {
		return answer{}, err
	}
	engine := vpolengine.NewEngine(provider, asked.namespace, matching.NewMatcher())
	var got answer
	response, err := engine.Handle(context.Background(), celengine.RequestFromAdmission(known, asked.Request), nil)
	if err != nil {
		return answer{}, err
	}
	for _, each := range response.Policies {
		got.add(each.Policy, each.Policy.GetMatchConstraints(), each.Rules)
	}
	handler := vpol.New(engine, known, nil, false, event.NewFake())
	has := func(namespaced bool) bool {
		return slices.ContainsFunc(policies, func(each policiesv1beta1.ValidatingPolicyLike) bool {
			return (each.GetNamespace() != "") == namespaced
		})
	}
	received := asked.received(asked.Request)
	if has(false) {
		given := handler.ValidateClustered(context.Background(), logr.Discard(), received, "", time.Now())
		got.Webhooks = append(got.Webhooks, answerOf("vpol.validate.kyverno.svc", given))
	}
	if has(true) {
		given := handler.ValidateNamespaced(context.Background(), logr.Discard(), received, "", time.Now())
		got.Webhooks = append(got.Webhooks, answerOf("nvpol.validate.kyverno.svc", given))
	}
	return got, nil
}

// -- MutatingPolicy -------------------------------------------------------------------------------

func mutated(asked *question) (answer, error) {
	known := asked.context()
	policies := parsed(asked.Policies, func(kind string) policiesv1beta1.MutatingPolicyLike {
		if kind == "NamespacedMutatingPolicy" {
			return &policiesv1beta1.NamespacedMutatingPolicy{}
		}
		return &policiesv1beta1.MutatingPolicy{}
	})
	provider, err := mpolengine.NewProvider(mpolcompiler.NewCompiler(), policies, asked.celExceptions(), known)
	if err != nil {
		return answer{}, err
	}
	engine := mpolengine.NewEngine(provider, asked.namespace, matching.NewMatcher(), converter, known)
	var got answer
	request := asked.Request
	handler := mpol.New(known, engine, nil, reportutils.ReportingCfg, updaterequest.NewFake(), "", event.NewFake())
	for _, namespaced := range []bool{false, true} {
		var names []string
		for _, each := range policies {
			if (each.GetNamespace() != "") == namespaced {
				names = append(names, each.GetName())
			}
		}
		if len(names) == 0 {
			continue
		}
		// Which policies a webhook has is in its path.
		path := httprouter.Params{{Key: "policies", Value: "/" + strings.Join(names, "/")}}
		ctx := context.WithValue(context.Background(), httprouter.ParamsKey, path)
		predicate := mpolengine.And(mpolengine.ClusteredPolicy(), mpolengine.NoTargetMatchConstraintPolicy())
		call, name := handler.MutateClustered, "mpol.validate.kyverno.svc"
		if namespaced {
			predicate = mpolengine.And(
				mpolengine.NamespacedPolicy(request.Namespace), mpolengine.NoTargetMatchConstraintPolicy())
			call, name = handler.MutateNamespaced, "nmpol.validate.kyverno.svc"
		}
		response, err := engine.Handle(ctx, celengine.RequestFromAdmission(known, request), predicate)
		if err != nil {
			return answer{}, err
		}
		for _, each := range response.Policies {
			got.add(each.Policy, each.Policy.GetMatchConstraints(), each.Rules)
		}
		given := call(ctx, logr.Discard(), asked.received(request), "", time.Now())
		got.Webhooks = append(got.Webhooks, answerOf(name, given))
		if !given.Allowed {
			// The API server asks no further webhook.
			return got, nil
		}
		if len(given.Patch) != 0 {
			patch, err := jsonpatch.DecodePatch(given.Patch)
			if err != nil {
				return answer{}, err
			}
			// The next webhook gets the changed object.
			request.Object.Raw, err = patch.Apply(request.Object.Raw)
			if err != nil {
				return answer{}, fmt.Errorf("patch: %w", err)
			}
		}
	}
	if len(request.Object.Raw) != 0 {
		got.Object = json.RawMessage(request.Object.Raw)
	}
	return got, nil
}

// -- answers --------------------------------------------------------------------------------------

// add tells what became of a policy or variant; nothing, if it did not match. Variants come in a random order.
func (got *answer) add(
	policy interface{ GetName() string }, constraints admissionregistrationv1.MatchResources, found []engineapi.RuleResponse,
) {
	if len(found) == 0 {
		return
	}
	var resources []string
	for _, each := range constraints.ResourceRules {
		resources = append(resources, each.Resources...)
	}
	got.Policies = append(got.Policies, outcome{policy.GetName(), strings.Join(resources, " "), rules(found)})
}

func rules(found []engineapi.RuleResponse) []rule {
	var made []rule
	for _, each := range found {
		properties := map[string]string{}
		for key, value := range each.Properties() {
			if key != "cel.validationIndex" {
				properties[key] = value
			}
		}
		made = append(made, rule{each.Name(), string(each.Status()), each.Message(), properties})
	}
	return made
}

func answerOf(name string, given admissionv1.AdmissionResponse) webhook {
	made := webhook{Name: name, Allowed: given.Allowed, Warnings: slices.Sorted(slices.Values(given.Warnings))}
	if given.Result != nil {
		made.Message, made.Code, made.Reason = given.Result.Message, given.Result.Code, string(given.Result.Reason)
	}
	return made
}
