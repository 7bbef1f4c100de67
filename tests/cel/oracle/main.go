// The API server's own compiler and evaluator of matchConditions, as a filter: a JSON object a line.
//
// In: {"expression": CEL, "request": AdmissionRequest}. Out: what that is for a webhook, and at what cost.
// With "typed", objects of Kubernetes' own kinds have the Go types that they have in the API server. With "policy",
// the expression has "params" and "namespace", as in a policy; with "mutation", too, it is evaluated as a mutation is.
// With "encode", the objects come back.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

type question struct {
	Expression string                       `json:"expression"`
	Request    admissionv1.AdmissionRequest `json:"request"`
	Typed      bool                         `json:"typed"`
	Policy     bool                         `json:"policy"`
	Mutation   bool                         `json:"mutation"`
	Encode     bool                         `json:"encode"`
	Params     runtime.RawExtension         `json:"params"`
	Namespace  *corev1.Namespace            `json:"namespace"`
}

type answer struct {
	// Refused is why the expression does not compile where it is evaluated.
	Refused string `json:"refused,omitempty"`
	// RefusedNew is why it could not be written into a configuration today.
	RefusedNew string `json:"refusedNew,omitempty"`
	Value      *bool  `json:"value,omitempty"`
	Error      string `json:"error,omitempty"`
	Cost       int64  `json:"cost"`
	// Object and OldObject are those of the request as the API server encodes them, if that is wanted.
	Object    runtime.Object `json:"object,omitempty"`
	OldObject runtime.Object `json:"oldObject,omitempty"`
	// Checks are what the authorizer was asked.
	Checks []check `json:"checks,omitempty"`
}

type check struct {
	User, UID                                                          string
	Groups                                                             []string
	Extra                                                              map[string][]string
	Verb, Namespace, Group, Version, Resource, Subresource, Name, Path string
	Fields, Labels                                                     []string
}

// judge answers by the verb alone, so that a test knows what it will say.
type judge struct{ asked []check }

func (j *judge) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := a.GetUser()
	seen := check{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: who.GetExtra(),
		Verb: a.GetVerb(), Namespace: a.GetNamespace(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(), Path: a.GetPath(),
	}
	if fields, err := a.GetFieldSelector(); err == nil {
		for _, one := range fields {
			seen.Fields = append(seen.Fields, fmt.Sprintf("%s %s %s", one.Field, one.Operator, one.Value))
		}
	}
	if labels, err := a.GetLabelSelector(); err == nil {
		for _, one := range labels {
			seen.Labels = append(seen.Labels, one.String())
		}
	}
	j.asked = append(j.asked, seen)
	switch {
	case slices.Contains([]string{"get", "list", "use"}, a.GetVerb()):
		return authorizer.DecisionAllow, "granted", nil
	case a.GetVerb() == "break":
		return authorizer.DecisionNoOpinion, "", errors.New("broken")
	}
	return authorizer.DecisionNoOpinion, "not granted", nil
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	compiler := celplugin.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
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
		if err := encoder.Encode(evaluate(compiler, &asked)); err != nil {
			os.Exit(1)
		}
		out.Flush()
	}
}

func evaluate(compiler celplugin.Compiler, asked *question) (got answer) {
	compiling := true
	defer func() {
		if problem := recover(); problem != nil && compiling {
			// The API server answers 500 to what would configure it.
			got.Refused = fmt.Sprintf("panic: %v", problem)
		} else if problem != nil {
			got.Error = fmt.Sprintf("panic: %v", problem)
		}
	}()
	condition := &matchconditions.MatchCondition{Name: "condition", Expression: asked.Expression}
	declared := celplugin.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: asked.Policy}
	if result := compiler.CompileCELExpression(condition, declared, environment.NewExpressions); result.Error != nil {
		got.RefusedNew = result.Error.Error()
	}
	compiled := compiler.CompileCELExpression(condition, declared, environment.StoredExpressions)
	compiling = false
	if compiled.Error != nil {
		got.Refused = compiled.Error.Error()
		return got
	}
	seen := attributes(&asked.Request, asked.Typed)
	if asked.Encode {
		got.Object, got.OldObject = decoded(asked.Request.Object, asked.Typed), decoded(asked.Request.OldObject, asked.Typed)
	}
	request := celplugin.CreateAdmissionRequest(
		seen.Attributes, metav1.GroupVersionResource(seen.GetResource()), metav1.GroupVersionKind(seen.VersionedKind))
	authority := &judge{}
	bindings := celplugin.OptionalVariableBindings{Authorizer: authority, VersionedParams: decoded(asked.Params, asked.Typed)}
	result, left, err := result(compiled, asked, seen, request, bindings)
	got.Checks = authority.asked
	if err != nil {
		got.Error = err.Error()
		return got
	}
	got.Cost = celconfig.RuntimeCELCostBudgetMatchConditions - left
	if result.Error != nil {
		got.Error = result.Error.Error()
		return got
	}
	value, ok := result.EvalResult.Value().(bool)
	if !ok {
		got.Error = fmt.Sprintf("no bool: %v", result.EvalResult)
		return got
	}
	got.Value = &value
	return got
}

func result(
	compiled celplugin.CompilationResult, asked *question, seen *admission.VersionedAttributes,
	request *admissionv1.AdmissionRequest, bindings celplugin.OptionalVariableBindings,
) (celplugin.EvaluationResult, int64, error) {
	const budget = celconfig.RuntimeCELCostBudgetMatchConditions
	if asked.Mutation {
		return celplugin.NewMutatingEvaluator(compiled).ForInput(
			context.Background(), seen, request, bindings, asked.Namespace, budget)
	}
	results, left, err := celplugin.NewCondition([]celplugin.CompilationResult{compiled}).ForInput(
		context.Background(), seen, request, bindings, asked.Namespace, budget)
	if err != nil {
		return celplugin.EvaluationResult{}, left, err
	}
	return results[0], left, nil
}

func attributes(request *admissionv1.AdmissionRequest, typed bool) *admission.VersionedAttributes {
	object, old := decoded(request.Object, typed), decoded(request.OldObject, typed)
	extra := map[string][]string{}
	for key, values := range request.UserInfo.Extra {
		extra[key] = values
	}
	who := &user.DefaultInfo{
		Name: request.UserInfo.Username, UID: request.UserInfo.UID, Groups: request.UserInfo.Groups, Extra: extra,
	}
	kind, resource := request.Kind, request.Resource
	if request.RequestKind != nil {
		kind = *request.RequestKind
	}
	if request.RequestResource != nil {
		resource = *request.RequestResource
	}
	record := admission.NewAttributesRecord(
		nil, nil, schema.GroupVersionKind(kind), request.Namespace, request.Name,
		schema.GroupVersionResource(resource), request.RequestSubResource, admission.Operation(request.Operation),
		decoded(request.Options, false), request.DryRun != nil && *request.DryRun, who)
	seen := &admission.VersionedAttributes{Attributes: record, VersionedKind: schema.GroupVersionKind(request.Kind)}
	if object != nil {
		seen.VersionedObject = admission.NewLazyObject(object)
	}
	if old != nil {
		seen.VersionedOldObject = admission.NewLazyObject(old)
	}
	return seen
}

// decoded returns the object, of its Go type if that is wanted and it has one; nil if there is none.
func decoded(raw runtime.RawExtension, typed bool) runtime.Object {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw.Raw); err != nil {
		panic(err)
	}
	kind := object.GroupVersionKind()
	if !typed || !scheme.Scheme.Recognizes(kind) {
		return object
	}
	found, err := scheme.Scheme.New(kind)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(raw.Raw, found); err != nil {
		panic(err)
	}
	return found
}
