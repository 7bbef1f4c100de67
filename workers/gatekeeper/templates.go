package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"admission-gateway.io/gatekeeper/internal/prepared"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers"
	coretemplates "github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/drivers/k8scel"
	celschema "github.com/open-policy-agent/gatekeeper/v3/pkg/drivers/k8scel/schema"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/gator/reader"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	"github.com/open-policy-agent/opa/v1/ast"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// disabledBuiltins are the functions of Rego with which a policy would reach the network or the process, and two that can loop and
// allocate without end: a template that calls one does not compile. Gatekeeper's chart disables http.send alone.
var disabledBuiltins = []string{
	"http.send", "net.lookup_ip_addr", "opa.runtime", "graph.reachable_paths", "strings.render_template",
}

var capabilities = prepared.Capabilities(disabledBuiltins...)

// forbidRemoteSchemas keeps json.match_schema and json.verify_schema from fetching what a schema refers to. Which hosts they
// may ask is a variable of OPA that only the compilation of a schema sets (opa:v1/ast/compile.go); templates have none.
var forbidRemoteSchemas = sync.OnceFunc(func() {
	capabilities := ast.CapabilitiesForThisVersion()
	capabilities.AllowNet = []string{}
	schemas := ast.NewSchemaSet()
	schemas.Put(ast.SchemaRootRef, map[string]any{"type": "object"})
	ast.NewCompiler().WithCapabilities(capabilities).WithSchemas(schemas).Compile(nil)
})

// k8sTarget is the only target of Gatekeeper.
var k8sTarget = &target.K8sValidationTarget{}

// template is a compiled ConstraintTemplate. It has a driver of its own, which does not change any more: a driver that
// compiles waits for its evaluations, and lets no other begin.
type template struct {
	kind string
	// description is that of the template's annotation.
	description string
	// operations are those of the template; empty: all.
	operations []string
	driver     drivers.Driver
	// client checks constraints, by the schema of the template.
	client *client.Client
	schema *structuralschema.Structural
	// asksProviders is set if the Rego asks external providers, and readsInventory if it may read the inventory.
	asksProviders, readsInventory bool
}

// contentHash identifies the content of a document, without what the API server adds.
type contentHash [sha256.Size]byte

func hashOf(object document) contentHash {
	text, err := json.Marshal([]any{
		object.GetAPIVersion(), object.GetKind(), object.GetName(), object.GetLabels(), object.GetAnnotations(),
		object.Object["spec"],
	})
	if err != nil {
		// A document is made of JSON.
		panic(err)
	}
	return sha256.Sum256(text)
}

// newTemplate compiles a ConstraintTemplate, as Gatekeeper does: the CEL of a template with both CEL and Rego. The error
// is Gatekeeper's.
func newTemplate(object document) (*template, error) {
	read, err := reader.ToTemplate(gatekeeperScheme, object.Unstructured)
	if err != nil {
		return nil, err
	}
	made := &template{kind: read.Spec.CRD.Spec.Names.Kind, description: read.Annotations["description"]}
	for _, each := range read.Spec.Targets {
		for _, operation := range each.Operations {
			made.operations = append(made.operations, string(operation))
		}
	}
	made.asksProviders = isWithin(object.Object["spec"], "external_data")
	made.readsInventory = isWithin(object.Object["spec"], "inventory")
	if slices.Contains(made.operations, "*") && len(made.operations) > 1 {
		return nil, errors.New("if '*' is present, must not specify other operations")
	}
	if made.driver, err = newDriver(read); err != nil {
		return nil, err
	}
	made.client, err = client.NewClient(client.Targets(k8sTarget), client.Driver(made.driver),
		client.EnforcementPoints(util.WebhookEnforcementPoint), client.IgnoreNoReferentialDriverWarning(true))
	if err != nil {
		return nil, err
	}
	if _, err := made.client.AddTemplate(context.Background(), read); err != nil {
		return nil, err
	}
	definition, err := made.client.CreateCRD(context.Background(), read)
	if err != nil {
		return nil, err
	}
	made.schema, err = structuralschema.NewStructural(definition.Spec.Validation.OpenAPIV3Schema)
	return made, err
}

// isWithin reports whether a string of the value contains the word.
func isWithin(value any, word string) bool {
	text, err := json.Marshal(value)
	return err == nil && bytes.Contains(text, []byte(word))
}

// newDriver returns a driver for the language in which Gatekeeper evaluates the template.
func newDriver(read *coretemplates.ConstraintTemplate) (drivers.Driver, error) {
	for _, each := range read.Spec.Targets {
		for _, code := range each.Code {
			if code.Engine == celschema.Name {
				return k8scel.New()
			}
		}
	}
	forbidRemoteSchemas()
	registerExternalData()
	return prepared.New(capabilities), nil
}

// matchesOperation reports whether constraints of the template are evaluated for the operation.
func (t *template) matchesOperation(operation string) bool {
	return len(t.operations) == 0 || slices.Contains(t.operations, "*") || slices.Contains(t.operations, operation)
}

// templateCache has compiled templates, and why others could not be compiled, by their content.
type templateCache map[contentHash]compiled

type compiled struct {
	template *template
	err      error
}

// compile returns the template of the document, compiled before if it has not changed, and keeps it in next.
func (c templateCache) compile(object document, next templateCache) (*template, error) {
	hash := hashOf(object)
	found, isKnown := c[hash]
	if !isKnown {
		found.template, found.err = newTemplate(object)
	}
	next[hash] = found
	return found.template, found.err
}

// templatesOf compiles the ConstraintTemplates of the documents. It returns them by the kind of their constraints, with
// what to keep of the cache, and a problem for each that cannot be used.
func templatesOf(objects []document, before templateCache) (map[string]*template, templateCache, []error) {
	found, next := make(map[string]*template), make(templateCache)
	places := make(map[string]string)
	var problems []error
	for _, object := range objects {
		if object.GroupVersionKind().Group != templatesGroup {
			continue
		}
		if place, isKnown := places[object.GetName()]; isKnown {
			problems = append(problems, problem(object, fmt.Errorf("the same ConstraintTemplate stands in %s", place)))
			continue
		}
		places[object.GetName()] = object.Place
		made, err := before.compile(object, next)
		if err != nil {
			problems = append(problems, problem(object, err))
			continue
		}
		found[made.kind] = made
	}
	return found, next, problems
}

// readInventory reports whether a template may read the inventory.
func readInventory(templates map[string]*template) bool {
	for _, each := range templates {
		if each.readsInventory {
			return true
		}
	}
	return false
}
