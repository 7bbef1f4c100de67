package main

import (
	"fmt"
	"maps"

	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	enginecontext "github.com/kyverno/kyverno/pkg/engine/context"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// policyContext is what the engine evaluates a policy with: Kyverno's own (kyverno:pkg/engine/policycontext) with another jsonContext.
type policyContext struct {
	policy                            kyvernov1.PolicyInterface
	newResource, oldResource, element unstructured.Unstructured
	info                              kyvernov2.RequestInfo
	operation                         kyvernov1.AdmissionOperation
	kind                              schema.GroupVersionKind
	resource                          metav1.GroupVersionResource
	subresource                       string
	namespaceLabels                   map[string]string
	variables                         *jsonContext
}

var _ engineapi.PolicyContext = &policyContext{}

// newPolicyContext returns the context for a request.
func newPolicyContext(of *admissionv1.AdmissionRequest, info kyvernov2.RequestInfo) (*policyContext, error) {
	made := &policyContext{
		info: info, operation: kyvernov1.AdmissionOperation(of.Operation), kind: schema.GroupVersionKind(of.Kind),
		resource: of.Resource, subresource: of.SubResource, variables: newJSONContext(nil),
	}
	// The objects are decoded once, and not with the rest.
	rest := *of
	rest.Object, rest.OldObject = runtime.RawExtension{}, runtime.RawExtension{}
	if err := made.variables.AddRequest(rest); err != nil {
		return nil, fmt.Errorf("failed to load incoming request in context: %w", err)
	}
	for _, each := range []struct {
		name string
		raw  []byte
		into *unstructured.Unstructured
	}{{"object", of.Object.Raw, &made.newResource}, {"oldObject", of.OldObject.Raw, &made.oldResource}} {
		if each.raw == nil {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(each.raw); err != nil {
			return nil, fmt.Errorf("the %s of the request: %w", each.name, err)
		}
		found, _ := withFloats(object.Object)
		if err := made.variables.replace(each.name, found.(map[string]any)); err != nil {
			return nil, err
		}
		*each.into = completed(object, of)
	}
	if err := made.variables.AddUserInfo(info); err != nil {
		return nil, fmt.Errorf("failed to load userInfo in context: %w", err)
	}
	if err := made.variables.AddServiceAccount(info.AdmissionUserInfo.Username); err != nil {
		return nil, err
	}
	return made, made.variables.AddImageInfos(&made.newResource, configuration)
}

// withFloats returns the value with floats instead of integers, as variables have them, and whether that is another one.
func withFloats(value any) (any, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case map[string]any:
		var made map[string]any
		for key, member := range value {
			if other, isOther := withFloats(member); isOther {
				if made == nil {
					made = maps.Clone(value)
				}
				made[key] = other
			}
		}
		if made != nil {
			return made, true
		}
	case []any:
		var made []any
		for index, element := range value {
			if other, isOther := withFloats(element); isOther {
				if made == nil {
					made = append(made, value...)
				}
				made[index] = other
			}
		}
		if made != nil {
			return made, true
		}
	}
	return value, false
}

// completed returns the object with kind and Namespace of the request (kyverno:pkg/utils/admission/resource.go). The given one stays
// as it is: variables have parts of it.
func completed(given *unstructured.Unstructured, of *admissionv1.AdmissionRequest) unstructured.Unstructured {
	made := unstructured.Unstructured{Object: maps.Clone(given.Object)}
	if metadata, isObject := made.Object["metadata"].(map[string]any); isObject {
		made.Object["metadata"] = maps.Clone(metadata)
	}
	made.SetGroupVersionKind(schema.GroupVersionKind(of.Kind))
	switch {
	case of.Namespace != "" && of.Kind.Kind != "Namespace":
		made.SetNamespace(of.Namespace)
	case made.GetKind() == "Namespace" && made.GetNamespace() != "":
		made.SetNamespace("")
	}
	return made
}

// with returns the context for another policy.
func (c *policyContext) with(policy kyvernov1.PolicyInterface) *policyContext {
	made := *c
	made.policy = policy
	return &made
}

// Copy returns a copy, which has the same variables.
func (c *policyContext) Copy() engineapi.PolicyContext {
	made := *c
	return &made
}

// Policy is the policy that is evaluated.
func (c *policyContext) Policy() kyvernov1.PolicyInterface { return c.policy }

// NewResource is the object; empty if there is none.
func (c *policyContext) NewResource() unstructured.Unstructured { return c.newResource }

// OldResource is the stored object; empty if there is none.
func (c *policyContext) OldResource() unstructured.Unstructured { return c.oldResource }

// SetResources replaces both objects.
func (c *policyContext) SetResources(before, now unstructured.Unstructured) error {
	c.newResource, c.oldResource = now, before
	if err := c.variables.AddResource(now.Object); err != nil {
		return err
	}
	return c.variables.AddOldResource(before.Object)
}

// Operation is that of the request.
func (c *policyContext) Operation() kyvernov1.AdmissionOperation { return c.operation }

// SetOperation replaces the operation.
func (c *policyContext) SetOperation(operation kyvernov1.AdmissionOperation) error {
	c.operation = operation
	return c.variables.AddOperation(string(operation))
}

// AdmissionInfo is the user, with roles.
func (c *policyContext) AdmissionInfo() kyvernov2.RequestInfo { return c.info }

// NamespaceLabels are the labels of the Namespace of the object.
func (c *policyContext) NamespaceLabels() map[string]string { return c.namespaceLabels }

// RequestResource is the resource of the request.
func (c *policyContext) RequestResource() metav1.GroupVersionResource { return c.resource }

// ResourceKind is the kind of the object, with the subresource of the request.
func (c *policyContext) ResourceKind() (schema.GroupVersionKind, string) {
	switch {
	case !c.kind.Empty():
		return c.kind, c.subresource
	case c.newResource.Object != nil:
		return c.newResource.GroupVersionKind(), ""
	}
	return c.oldResource.GroupVersionKind(), ""
}

// AdmissionOperation is true: this is a webhook.
func (c *policyContext) AdmissionOperation() bool { return true }

// Element is the element of a list that is evaluated; empty if there is none.
func (c *policyContext) Element() unstructured.Unstructured { return c.element }

// SetElement sets the element of a list.
func (c *policyContext) SetElement(element unstructured.Unstructured) { c.element = element }

// JSONContext returns the variables.
func (c *policyContext) JSONContext() enginecontext.Interface { return c.variables }
