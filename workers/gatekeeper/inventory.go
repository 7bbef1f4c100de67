package main

import (
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// inventory is what policies know of other objects; it does not change.
type inventory struct {
	// data is what Rego reads as data.inventory. It shares the objects with the documents.
	data map[string]any
	// namespaces are those that the documents have, by name.
	namespaces map[string]*corev1.Namespace
}

// inventoryOf returns the objects that are not of Gatekeeper's own kinds, without those that the Config excludes from sync,
// and a problem for each that Gatekeeper would not store.
func inventoryOf(objects []document, configured configuration) (inventory, []error) {
	found := inventory{data: make(map[string]any), namespaces: make(map[string]*corev1.Namespace)}
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
		_, path, value, err := k8sTarget.ProcessData(object.Unstructured)
		if err != nil {
			problems = append(problems, problem(object, err))
			continue
		}
		found.add(path, value)
	}
	return found, problems
}

// add puts a value at a path.
func (i *inventory) add(path []string, value any) {
	within := i.data
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
