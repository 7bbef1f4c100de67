package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"admission-gateway.io/worker"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/userinfo"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// request is what all policies need of one request.
type request struct {
	admission admissionv1.AdmissionRequest
	info      kyvernov2.RequestInfo
	// namespace is nil if it is unknown, or there is none.
	namespace *corev1.Namespace
	// made is the context of all validate rules; nil before the first of them.
	made *policyContext
	err  error
}

// derive returns the request of a review, which is made once for all policies with this state.
func (s *state) derive(review *worker.Review) *request {
	return review.Shared(s, func() any {
		made := &request{}
		made.err = made.read(s, review)
		return made
	}).(*request)
}

func (r *request) read(s *state, review *worker.Review) error {
	text, err := review.RequestJSON()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.admission); err != nil {
		return fmt.Errorf("the AdmissionRequest cannot be decoded: %w", err)
	}
	if text := review.NamespaceJSON(); len(text) > 0 {
		r.namespace = &corev1.Namespace{}
		if err := json.Unmarshal(text, r.namespace); err != nil {
			return fmt.Errorf("the Namespace cannot be decoded: %w", err)
		}
	} else if r.admission.Namespace != "" {
		r.namespace = s.mocks.namespace(r.admission.Namespace)
		if r.namespace == nil {
			r.namespace = s.data.known(r.admission.Namespace)
		}
	}
	if s.mocks.user != nil {
		r.info = *s.mocks.user
		r.admission.UserInfo = s.mocks.user.AdmissionUserInfo
	} else {
		// As kyverno:pkg/webhooks/handlers/enrich.go does.
		r.info.AdmissionUserInfo = *r.admission.UserInfo.DeepCopy()
		r.info.Roles, r.info.ClusterRoles, err = userinfo.GetRoleRef(
			s.roleBindings, s.clusterRoleBindings, r.admission.UserInfo, r.admission.Namespace)
		if err != nil {
			return err
		}
	}
	if r.admission.DryRun != nil {
		r.info.DryRun = *r.admission.DryRun
	}
	return nil
}

// shared returns the context in which the engine validates, which the rules of a request share as in Kyverno's webhooks:
// to make it takes several times as long as to evaluate a pattern.
func (r *request) shared(ctx context.Context, s *state, policies ...kyvernov1.PolicyInterface) (*policyContext, error) {
	if s.mocks.isUsed {
		return r.context(ctx, s, policies...)
	}
	if err := r.check(policies); err != nil {
		return nil, err
	}
	if r.made == nil {
		made, err := r.context(ctx, s, policies...)
		if err != nil {
			return nil, err
		}
		r.made = made
	}
	r.made.variables.until = ctx
	return r.made, nil
}

// context returns the context in which the engine evaluates policies, for one goroutine, until ctx ends.
func (r *request) context(ctx context.Context, s *state, policies ...kyvernov1.PolicyInterface) (*policyContext, error) {
	if r.err != nil {
		return nil, r.err
	}
	made, err := newPolicyContext(&r.admission, r.info)
	if err != nil {
		return nil, err
	}
	made.variables.until = ctx
	made.kind = s.topLevel(r)
	if r.isNamespaced() && r.namespace != nil {
		made.namespaceLabels = r.namespace.Labels
	}
	if !s.mocks.isUsed {
		return made, r.check(policies)
	}
	if len(policies) == 0 {
		return made, nil
	}
	return made, s.mocks.inject(made, policies[0].GetName(), r.admission.Name)
}

// check returns an error if a policy selects by labels that are not known. Kyverno's webhooks deny then: a selector that
// cannot be evaluated must not allow.
func (r *request) check(policies []kyvernov1.PolicyInterface) error {
	if r.namespace == nil && r.isNamespaced() && selectsNamespaces(policies) {
		return fmt.Errorf("the Namespace %q is not known, and the policy selects by its labels", r.admission.Namespace)
	}
	return nil
}

// isNamespaced reports whether the object is in a Namespace.
func (r *request) isNamespaced() bool {
	return r.admission.Kind.Kind != "Namespace" && r.admission.Namespace != ""
}

// selectsNamespaces reports whether labels of Namespaces decide what a policy matches.
func selectsNamespaces(policies []kyvernov1.PolicyInterface) bool {
	for _, policy := range policies {
		for _, rule := range policy.GetSpec().Rules {
			if selects(rule.MatchResources) || rule.ExcludeResources != nil && selects(*rule.ExcludeResources) {
				return true
			}
			if rule.Validation == nil {
				continue
			}
			for _, override := range rule.Validation.FailureActionOverrides {
				if override.NamespaceSelector != nil {
					return true
				}
			}
		}
		for _, override := range policy.GetSpec().ValidationFailureActionOverrides {
			if override.NamespaceSelector != nil {
				return true
			}
		}
	}
	return false
}

func selects(match kyvernov1.MatchResources) bool {
	if match.NamespaceSelector != nil {
		return true
	}
	for _, filters := range []kyvernov1.ResourceFilters{match.Any, match.All} {
		for _, filter := range filters {
			if filter.NamespaceSelector != nil {
				return true
			}
		}
	}
	return false
}

// withNamespace has the engine find the Namespace of the request.
func (r *request) withNamespace(ctx context.Context) context.Context {
	return context.WithValue(ctx, namespaceKey{}, r.namespace)
}

type namespaceKey struct{}

// namespaceOf returns the Namespace of the request that is evaluated with ctx; nil if it is another one.
func namespaceOf(ctx context.Context, name string) *corev1.Namespace {
	found, _ := ctx.Value(namespaceKey{}).(*corev1.Namespace)
	if found == nil || found.Name != name {
		return nil
	}
	return found
}

// objectIn returns the object in a context that values have changed.
func objectIn(made *policyContext, query string) (unstructured.Unstructured, error) {
	found, err := made.JSONContext().Query(query)
	if err != nil || found == nil {
		return unstructured.Unstructured{}, err
	}
	members, isObject := found.(map[string]any)
	if !isObject {
		return unstructured.Unstructured{}, errors.New(query + " is not an object any more with the values")
	}
	return unstructured.Unstructured{Object: members}, nil
}
