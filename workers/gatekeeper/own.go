package main

import (
	"errors"
	"fmt"
	"net/http"

	"admission-gateway.io/worker"
	"github.com/open-policy-agent/frameworks/constraint/pkg/externaldata"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxOwnNameLength is how long the name of a document of Gatekeeper's may be (gatekeeper:pkg/webhook/policy.go).
const maxOwnNameLength = 63

// checkOwn denies a document of Gatekeeper's own kinds that could not be used, with the codes of Gatekeeper's webhook
// (gatekeeper:pkg/webhook/policy.go). It compiles templates too: Gatekeeper writes what is wrong with their code into their status,
// and this worker has none.
func (s *state) checkOwn(asked *admissionv1.AdmissionRequest) error {
	isWritten := asked.Operation == admissionv1.Create || asked.Operation == admissionv1.Update
	if !isOwnKind(asked.Kind.Group) || asked.Kind.Group == statusGroup || !isWritten || asked.SubResource != "" {
		return nil
	}
	if len(asked.Name) > maxOwnNameLength {
		return failed(fmt.Errorf("resource cannot have metadata.name larger than %d char; length: %d", maxOwnNameLength, len(asked.Name)))
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(asked.Object.Raw); err != nil {
		return failed(err)
	}
	if err := s.checkDocument(document{Unstructured: object}); err != nil {
		return worker.Deny(cut(err.Error()), worker.WithCode(http.StatusUnprocessableEntity))
	}
	if action, _, _ := unstructured.NestedString(object.Object, "spec", "enforcementAction"); asked.Kind.Group == constraintsGroup && action != "" {
		if err := util.ValidateEnforcementAction(util.EnforcementAction(action), object.Object); err != nil {
			return failed(err)
		}
	}
	return nil
}

// checkDocument returns why the document could not be used beside those of the state.
func (s *state) checkDocument(object document) error {
	var err error
	switch object.GroupVersionKind().Group {
	case templatesGroup:
		_, err = newTemplate(object)
	case constraintsGroup:
		of := s.templates[object.GetKind()]
		if of == nil {
			return missingTemplate(object.GetKind())
		}
		_, err = of.newConstraint(object.Unstructured)
	case configGroup:
		err = (&configuration{excluder: process.New()}).addConfig(object)
	case mutationsGroup:
		_, err = mutatorOf(object)
	case externalDataGroup:
		read, problem := providerOf(object)
		if err = problem; err == nil {
			err = externaldata.NewCache().Upsert(read)
		}
	case expansionGroup:
		_, problems := newExpansionSet([]document{object}, s.mutators)
		var found *documentProblem
		if err = errors.Join(problems...); errors.As(err, &found) {
			err = found.err
		}
	}
	return err
}

func missingTemplate(kind string) error {
	return fmt.Errorf("there is no usable ConstraintTemplate for the kind %s", kind)
}
