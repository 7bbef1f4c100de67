// The API server's own merge of an ApplyConfiguration, JSON Patch of a mutation and type checking of a policy, as a
// filter: a JSON object a line.
//
// In: {"schemas": components.schemas of an OpenAPI v3 document}, which holds for the lines after it;
// {"live": object, "patch": object}; {"live": object, "jsonPatch": expression};
// or {"policy": ValidatingAdmissionPolicy, "resources": [kinds of resources]}.
// Out: what each of them comes to.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

type question struct {
	Schemas   map[string]*spec.Schema                            `json:"schemas"`
	Live      json.RawMessage                                    `json:"live"`
	Patch     json.RawMessage                                    `json:"patch"`
	JSONPatch string                                             `json:"jsonPatch"`
	Policy    *admissionregistrationv1.ValidatingAdmissionPolicy `json:"policy"`
	Resources []resource                                         `json:"resources"`
}

type resource struct {
	Group, Version, Kind, Resource string
	Namespaced                     bool
}

type answer struct {
	Merged   map[string]any                              `json:"merged,omitempty"`
	Error    string                                      `json:"error,omitempty"`
	Warnings []admissionregistrationv1.ExpressionWarning `json:"warnings,omitempty"`
}

// documents resolves the schemas of one document.
type documents struct {
	schemas   map[string]*spec.Schema
	converter managedfields.TypeConverter
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	var known documents
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			fail(err)
		}
		if err := encoder.Encode(evaluate(&known, &asked)); err != nil {
			fail(err)
		}
		out.Flush()
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func evaluate(known *documents, asked *question) answer {
	switch {
	case asked.Schemas != nil:
		converter, err := managedfields.NewTypeConverter(asked.Schemas, false)
		if err != nil {
			fail(err)
		}
		*known = documents{asked.Schemas, converter}
		return answer{}
	case asked.Policy != nil:
		checker := validating.TypeChecker{SchemaResolver: known, RestMapper: mapper(asked.Resources)}
		return answer{Warnings: checker.Check(asked.Policy)}
	case asked.JSONPatch != "":
		return patched(object(asked.Live), asked.JSONPatch)
	}
	live, changes := object(asked.Live), object(asked.Patch)
	changes.SetGroupVersionKind(live.GroupVersionKind())
	merged, err := patch.ApplyStructuredMergeDiff(known.converter, live, changes)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Merged: merged.(*unstructured.Unstructured).Object}
}

func object(text []byte) *unstructured.Unstructured {
	fields := map[string]any{}
	if err := utiljson.Unmarshal(text, &fields); err != nil {
		fail(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

func mapper(resources []resource) meta.RESTMapper {
	known := meta.NewDefaultRESTMapper(nil)
	for _, one := range resources {
		version := schema.GroupVersion{Group: one.Group, Version: one.Version}
		scope := meta.RESTScope(meta.RESTScopeRoot)
		if one.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		plural := version.WithResource(one.Resource)
		known.AddSpecific(version.WithKind(one.Kind), plural, plural, scope)
	}
	return known
}

// ResolveSchema returns the schema of a kind with its references put in.
func (d *documents) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	for name, one := range d.schemas {
		for _, each := range extension(one) {
			if each == kind {
				found, err := resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
					found, ok := d.schemas[ref[len("#/components/schemas/"):]]
					return found, ok
				}, "#/components/schemas/"+name)
				return found, err
			}
		}
	}
	return nil, resolver.ErrSchemaNotFound
}

func extension(one *spec.Schema) (kinds []schema.GroupVersionKind) {
	listed, _ := one.Extensions["x-kubernetes-group-version-kind"].([]any)
	for _, each := range listed {
		fields, _ := each.(map[string]any)
		group, _ := fields["group"].(string)
		version, _ := fields["version"].(string)
		kind, _ := fields["kind"].(string)
		kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	}
	return kinds
}
