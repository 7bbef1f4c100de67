package main

import (
	"errors"
	"fmt"

	documents "admission-gateway.io/engines"
	"github.com/open-policy-agent/gatekeeper/v3/apis"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// API groups of Gatekeeper's own kinds.
const (
	templatesGroup    = "templates.gatekeeper.sh"
	constraintsGroup  = "constraints.gatekeeper.sh"
	configGroup       = "config.gatekeeper.sh"
	syncSetGroup      = "syncset.gatekeeper.sh"
	mutationsGroup    = "mutations.gatekeeper.sh"
	expansionGroup    = "expansion.gatekeeper.sh"
	externalDataGroup = "externaldata.gatekeeper.sh"
	statusGroup       = "status.gatekeeper.sh"
)

// isOwnKind reports whether the API group is one of Gatekeeper's own (gatekeeper:pkg/webhook/common.go).
func isOwnKind(group string) bool {
	switch group {
	case templatesGroup, constraintsGroup, configGroup, mutationsGroup, expansionGroup, externalDataGroup, statusGroup:
		return true
	}
	return false
}

// document is one object of a folder or of the cluster, with where it was found. It is shared, and must not be changed.
type document = documents.Object

// identity is what makes two documents versions of the same object.
type identity struct{ group, kind, namespace, name string }

func keyOf(object document) identity {
	kind := object.GroupVersionKind()
	return identity{kind.Group, kind.Kind, object.GetNamespace(), object.GetName()}
}

// documentProblem is the error of one document.
type documentProblem struct {
	document document
	err      error
}

func (p *documentProblem) Error() string {
	return fmt.Sprintf("%s: %s %s: %v", p.document.Place, p.document.GetKind(), p.document.GetName(), p.err)
}

func (p *documentProblem) Unwrap() error { return p.err }

// problem returns an error that names the document.
func problem(object document, err error) error { return &documentProblem{object, err} }

// problemDocument returns the document that an error names.
func problemDocument(err error) (document, bool) {
	var found *documentProblem
	if !errors.As(err, &found) {
		return document{}, false
	}
	return found.document, true
}

// gatekeeperScheme has all types of Gatekeeper, and decoder decodes them.
var gatekeeperScheme = newScheme()

var decoder = serializer.NewCodecFactory(gatekeeperScheme).UniversalDeserializer()

func newScheme() *runtime.Scheme {
	made := runtime.NewScheme()
	if err := apis.AddToScheme(made); err != nil {
		panic(err)
	}
	return made
}
