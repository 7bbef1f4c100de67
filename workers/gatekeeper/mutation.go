package main

import (
	"context"

	"admission-gateway.io/worker"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/match"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// mutationPolicy is the policy "mutation": all mutators at once, as Gatekeeper's mutation webhook applies them
// (gatekeeper:pkg/webhook/mutation.go).
type mutationPolicy struct {
	mutators *mutatorSet
	// excluder has the namespaces that a Config excludes.
	excluder *process.Excluder
	// namespaces are those of the documents.
	namespaces map[string]*corev1.Namespace
}

// review changes the object of the review. An error of Gatekeeper's denies with code 500, as there; the end of the call's
// time is a failure.
func (p *mutationPolicy) review(ctx context.Context, review *worker.Review) error {
	if p.mutators.count == 0 {
		return nil
	}
	request, err := requestOf(review)
	if err != nil {
		return err
	}
	if isOwnRequest(request) || !match.IsSupportedMutationOperation(request.Operation) || isOwnKind(request.Kind.Group) {
		return nil
	}
	if p.isExcluded(request) {
		return nil
	}
	return p.mutate(ctx, review, request)
}

// isExcluded reports whether the Config excludes the request's namespace; an object that cannot be read is not
// excluded, as in Gatekeeper, and is refused later.
func (p *mutationPolicy) isExcluded(request *admissionv1.AdmissionRequest) bool {
	object := &unstructured.Unstructured{}
	if _, _, err := decoder.Decode(request.Object.Raw, nil, object); err != nil {
		return false
	}
	object.SetNamespace(request.Namespace)
	isExcluded, err := p.excluder.IsNamespaceExcluded(process.Mutation, object)
	return err == nil && isExcluded
}

func (p *mutationPolicy) mutate(ctx context.Context, review *worker.Review, request *admissionv1.AdmissionRequest) error {
	name := request.Namespace
	namespace, err := namespaceOf(review)
	if err != nil {
		return err
	}
	if isNamespaceKind(request) {
		// A Namespace is its own namespace.
		name, namespace = "", &corev1.Namespace{}
		if _, _, err := decoder.Decode(request.Object.Raw, nil, namespace); err != nil {
			return failed(err)
		}
	} else if name == "" {
		namespace = nil
	} else if namespace == nil {
		namespace = p.namespaces[name]
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
		return failed(err)
	}
	// The object of a CREATE need not have its namespace, which mutators match; the answer does not add it.
	before := object.GetNamespace()
	object.SetNamespace(name)
	isMutated, err := p.mutators.apply(ctx, &mutationtypes.Mutable{
		Object: object, Namespace: namespace, Username: request.UserInfo.Username,
		Source: mutationtypes.SourceTypeOriginal, Operation: request.Operation,
	})
	switch {
	case isOver(err):
		return err
	case err != nil:
		return failed(err)
	case !isMutated:
		return nil
	}
	object.SetNamespace(before)
	return setPatch(review, request.Object.Raw, object)
}

// setPatch answers the patch that Gatekeeper answers.
func setPatch(review *worker.Review, before []byte, object *unstructured.Unstructured) error {
	after, err := object.MarshalJSON()
	if err != nil {
		return failed(err)
	}
	response := admission.PatchResponseFromRaw(before, after)
	if !response.Allowed {
		return worker.Deny(response.Result.Message, worker.WithCode(int(response.Result.Code)))
	}
	operations := make([]worker.Operation, len(response.Patches))
	for index, operation := range response.Patches {
		operations[index] = worker.Operation{Op: operation.Operation, Path: operation.Path, Value: operation.Value}
	}
	review.SetPatch(operations...)
	return nil
}
