package main

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

var (
	environments = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	interfaces   = admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
)

// panicked is the error where the API server's library panics: it adds to a null that the patch has made.
const panicked = "panic"

// patched returns what a mutation of the type JSONPatch makes of live, an object of a custom resource.
func patched(live *unstructured.Unstructured, expression string) (found answer) {
	defer func() {
		if recover() != nil {
			found = answer{Error: panicked}
		}
	}()
	compiler, err := cel.NewCompositedCompiler(environments)
	if err != nil {
		fail(err)
	}
	options := cel.OptionalVariableDeclarations{HasPatchTypes: true}
	mutation := &patch.JSONPatchCondition{Expression: expression}
	evaluator := compiler.CompileMutatingEvaluator(mutation, options, environment.StoredExpressions)
	kind := live.GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "things"}
	attributes := admission.NewAttributesRecord(
		live, nil, kind, live.GetNamespace(), live.GetName(), resource, "", admission.Create, nil, false, nil)
	request := patch.Request{
		MatchedResource: resource,
		VersionedAttributes: &admission.VersionedAttributes{
			Attributes: attributes, VersionedObject: admission.NewLazyObject(live), VersionedKind: kind,
		},
		ObjectInterfaces: interfaces,
	}
	ctx := compiler.CreateContext(context.Background())
	merged, err := patch.NewJSONPatcher(evaluator).Patch(ctx, request, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Merged: merged.(*unstructured.Unstructured).Object}
}
