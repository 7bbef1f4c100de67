package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"admission-gateway.io/gatekeeper/internal/prepared"
	"admission-gateway.io/worker"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ownUser is Gatekeeper itself, whose requests its webhooks let through (gatekeeper:pkg/webhook/common.go).
var ownUser = fmt.Sprintf("system:serviceaccount:%s:gatekeeper-admin", util.GetNamespace())

// request is an AdmissionRequest as the policies of one state see it: what they derive from it is derived once.
type request struct {
	admission *admissionv1.AdmissionRequest
	namespace *corev1.Namespace
	// members are those of the namespace, of which options tell the driver for CEL.
	members map[string]any
	options []reviews.ReviewOpt
	// isSkipped is set if the webhook answers without a look at constraints.
	isSkipped bool
	// subjects are what constraints are evaluated on: the object, and those that it generates.
	subjects []*subject
	// err is why nothing can be evaluated.
	err error
}

// subject is one object that is reviewed.
type subject struct {
	// text is the JSON of the review of Gatekeeper's target, and forCEL the review: its driver changes it.
	text   json.RawMessage
	forCEL any
	// namespace is the Namespace of the object, and input what Rego gets of all; nil before the first use.
	namespace map[string]any
	input     *prepared.Input

	operation string
	source    mutationtypes.SourceType
	// object and oldObject are nil if the request has none; parseErr is why they could not be parsed.
	object, oldObject *unstructured.Unstructured
	parseErr          error

	// impliedBy is the ExpansionTemplate that made the object, and action what it makes of the enforcementAction; empty
	// for the object of the request.
	impliedBy, action string
}

// requestOf returns the AdmissionRequest of a review; it is the caller's own.
func requestOf(review *worker.Review) (*admissionv1.AdmissionRequest, error) {
	text, err := review.RequestJSON()
	if err != nil {
		return nil, err
	}
	decoded := &admissionv1.AdmissionRequest{}
	if err := json.Unmarshal(text, decoded); err != nil {
		return nil, fmt.Errorf("the AdmissionRequest cannot be decoded: %w", err)
	}
	return decoded, nil
}

// namespaceOf returns the Namespace of a review that the gateway has sent; nil without one.
func namespaceOf(review *worker.Review) (*corev1.Namespace, error) {
	text := review.NamespaceJSON()
	if len(text) == 0 {
		return nil, nil
	}
	decoded := &corev1.Namespace{}
	if err := json.Unmarshal(text, decoded); err != nil {
		return nil, fmt.Errorf("the Namespace of the request cannot be decoded: %w", err)
	}
	return decoded, nil
}

func isOwnRequest(asked *admissionv1.AdmissionRequest) bool {
	return asked.UserInfo.Username == ownUser
}

func isNamespaceKind(asked *admissionv1.AdmissionRequest) bool {
	return asked.Kind.Kind == "Namespace" && asked.Kind.Group == ""
}

// derive returns what the policies of the state have derived from the review. What another call had no time for is
// derived anew.
func (s *state) derive(ctx context.Context, review *worker.Review) *request {
	found := review.Shared(s, func() any { return s.newRequest(ctx, review) }).(*request)
	if isOver(found.err) && ctx.Err() == nil {
		return s.newRequest(ctx, review)
	}
	return found
}

// isOver reports whether an error says that the time of a call is over.
func isOver(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// newRequest derives all of it, as Gatekeeper's webhook does (gatekeeper:pkg/webhook/policy.go).
func (s *state) newRequest(ctx context.Context, review *worker.Review) *request {
	made := &request{}
	if made.admission, made.err = requestOf(review); made.err != nil {
		return made
	}
	if made.isSkipped = isOwnRequest(made.admission) || s.excludes(made.admission); made.isSkipped {
		return made
	}
	if isNamespaceKind(made.admission) {
		made.admission.Namespace = ""
	}
	if made.err = made.findNamespace(s, review); made.err == nil {
		made.err = made.review(ctx, s)
	}
	return made
}

// excludes reports whether a Config excludes the request from the webhook. What cannot be decoded is not excluded.
func (s *state) excludes(asked *admissionv1.AdmissionRequest) bool {
	if !s.configured.excludes {
		return false
	}
	raw := asked.Object.Raw
	if asked.Operation == admissionv1.Delete {
		raw = asked.OldObject.Raw
	}
	object := &unstructured.Unstructured{}
	if _, _, err := decoder.Decode(raw, nil, object); err != nil {
		return false
	}
	object.SetNamespace(asked.Namespace)
	isExcluded, err := s.excluder.IsNamespaceExcluded(process.Webhook, object)
	return err == nil && isExcluded
}

// findNamespace finds the Namespace: that of the gateway, or one of the documents.
func (r *request) findNamespace(s *state, review *worker.Review) error {
	if r.admission.Namespace == "" {
		return nil
	}
	found, err := namespaceOf(review)
	if err != nil {
		return err
	}
	if found == nil {
		found = s.namespaces[r.admission.Namespace]
	}
	r.namespace = found
	if r.members, err = util.NamespaceToMap(found); err == nil && r.members != nil {
		r.options = append(r.options, reviews.Namespace(r.members))
	}
	return err
}

// review makes the subjects.
func (r *request) review(ctx context.Context, s *state) error {
	original, err := newSubject(&target.AugmentedReview{
		AdmissionRequest: r.admission, Namespace: r.namespace, Source: mutationtypes.SourceTypeOriginal, IsAdmission: true,
	})
	if err != nil {
		return failed(fmt.Errorf("error reviewing resource %s: %w", r.admission.Name, err))
	}
	original.source, original.namespace = mutationtypes.SourceTypeOriginal, r.members
	r.subjects = []*subject{original}
	if s.expander == nil {
		return nil
	}
	return r.expand(ctx, s.expander)
}

// expand adds the objects that the object generates.
func (r *request) expand(ctx context.Context, expands expander) error {
	raw := r.admission.Object.Raw
	if r.admission.Operation == admissionv1.Delete {
		raw = r.admission.OldObject.Raw
	}
	if raw == nil {
		return nil
	}
	object := &unstructured.Unstructured{}
	if _, _, err := decoder.Decode(raw, nil, object); err != nil {
		return failed(fmt.Errorf("error decoding generator resource %s: %w", r.admission.Name, err))
	}
	object.SetNamespace(r.admission.Namespace)
	object.SetGroupVersionKind(schema.GroupVersionKind{
		Group: r.admission.Kind.Group, Version: r.admission.Kind.Version, Kind: r.admission.Kind.Kind,
	})
	resultants, err := expands.expand(ctx, &mutationtypes.Mutable{
		Object: object, Namespace: r.namespace, Username: r.admission.UserInfo.Username,
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &tooManyResultants{}):
		return err
	case err != nil:
		return failed(fmt.Errorf("unable to expand object: %w", err))
	}
	for _, resultant := range resultants {
		implied, err := newSubject(&target.AugmentedUnstructured{
			Object: *resultant.Obj, Namespace: r.namespace, Operation: r.admission.Operation,
			Source: mutationtypes.SourceTypeGenerated,
		})
		if err != nil {
			return failed(fmt.Errorf("error reviewing resultant resource: %w", err))
		}
		implied.source, implied.namespace = mutationtypes.SourceTypeGenerated, r.members
		implied.impliedBy, implied.action = resultant.TemplateName, resultant.EnforcementAction
		r.subjects = append(r.subjects, implied)
	}
	return nil
}

// forRego returns what Rego gets of the review, for the evaluations of one goroutine.
func (s *subject) forRego() (*prepared.Input, error) {
	var err error
	if s.input == nil {
		s.input, err = prepared.NewInput(s.text, s.namespace)
	}
	return s.input, err
}

// admissionGetter is the review of Gatekeeper's target.
type admissionGetter interface {
	GetAdmissionRequest() *admissionv1.AdmissionRequest
}

// newSubject has Gatekeeper's target make the review of an object.
func newSubject(asked any) (*subject, error) {
	made := &subject{}
	_, forRego, err := k8sTarget.HandleReview(asked)
	if err != nil {
		return nil, err
	}
	if made.text, err = json.Marshal(forRego); err != nil {
		return nil, err
	}
	if _, made.forCEL, err = k8sTarget.HandleReview(asked); err != nil {
		return nil, err
	}
	reviewed := forRego.(admissionGetter).GetAdmissionRequest()
	made.operation = string(reviewed.Operation)
	made.object, made.oldObject, made.parseErr = parseObjects(reviewed)
	return made, nil
}

// parseObjects parses the objects that constraints match. An error has the text of Gatekeeper's, without the object.
func parseObjects(reviewed *admissionv1.AdmissionRequest) (object, oldObject *unstructured.Unstructured, err error) {
	if raw := reviewed.Object.Raw; raw != nil {
		object = &unstructured.Unstructured{}
		if object.UnmarshalJSON(raw) != nil {
			return nil, nil, fmt.Errorf("%w: failed to unmarshal gkReview object", target.ErrRequestObject)
		}
	}
	if raw := reviewed.OldObject.Raw; raw != nil {
		oldObject = &unstructured.Unstructured{}
		if oldObject.UnmarshalJSON(raw) != nil {
			return nil, nil, fmt.Errorf("%w: failed to unmarshal gkReview oldObject", target.ErrRequestObject)
		}
	}
	return object, oldObject, nil
}
