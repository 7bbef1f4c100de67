package main

import (
	"admission-gateway.io/gatekeeper/internal/prepared"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// inventory is what policies know of other objects; it does not change.
type inventory struct {
	// data is what Rego reads as data.inventory.
	data *prepared.Inventory
	// values are those of the objects in it.
	values valueCache
	// namespaces are those that the documents have, by name.
	namespaces map[string]*corev1.Namespace
}

// valueCache has what Rego reads of objects: few objects change at a time.
type valueCache map[*unstructured.Unstructured]*prepared.Value

// inventoryOf returns the objects that are not of Gatekeeper's own kinds, without those that the Config excludes from sync,
// and a problem for each that Gatekeeper would not store. Without a template that reads them it has only the Namespaces: what
// Rego reads takes several times the memory of the documents.
func inventoryOf(objects []document, configured configuration, isRead bool, before valueCache) (inventory, []error) {
	found := inventory{values: make(valueCache), namespaces: make(map[string]*corev1.Namespace)}
	tree := make(map[string]any)
	var problems []error
	for _, object := range objects {
		kind := object.GroupVersionKind()
		if isOwnKind(kind.Group) || kind.Group == syncSetGroup {
			continue
		}
		if kind.Group == "" && kind.Kind == "Namespace" {
			namespace := &corev1.Namespace{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, namespace); err != nil {
				problems = append(problems, problem(object, err))
				continue
			}
			found.namespaces[namespace.Name] = namespace
		}
		if isExcluded, err := configured.excluder.IsNamespaceExcluded(process.Sync, object.Unstructured); err != nil {
			problems = append(problems, problem(object, err))
		} else if isExcluded {
			continue
		}
		_, path, content, err := k8sTarget.ProcessData(object.Unstructured)
		value := before[object.Unstructured]
		if err == nil && isRead && value == nil {
			value, err = prepared.NewValue(content)
		}
		if err != nil {
			problems = append(problems, problem(object, err))
		}
		if value == nil {
			continue
		}
		found.values[object.Unstructured] = value
		add(tree, path, value)
	}
	found.data = prepared.NewInventory(tree)
	return found, problems
}

// add puts a value at a path of a tree.
func add(tree map[string]any, path []string, value any) {
	within := tree
	for _, key := range path[:len(path)-1] {
		next, isMap := within[key].(map[string]any)
		if !isMap {
			next = make(map[string]any)
			within[key] = next
		}
		within = next
	}
	within[path[len(path)-1]] = value
}
