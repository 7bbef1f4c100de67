package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	documents "admission-gateway.io/engines"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// data is what rules may ask: a cluster, or a folder that stands for one.
type data interface {
	engineapi.Client
	engineapi.ConfigmapResolver
	// known returns a Namespace without asking; nil if it is not known.
	known(namespace string) *corev1.Namespace
	// kindFor returns the kind of a resource, if that is known.
	kindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool)
}

// folder has the objects of folders. It is read only.
type folder struct {
	// byResource has the objects of a resource of one version, and kinds their kind.
	byResource map[schema.GroupVersionResource][]*unstructured.Unstructured
	kinds      map[schema.GroupVersionResource]string
	namespaces map[string]*corev1.Namespace
	configMaps map[[2]string]*corev1.ConfigMap
}

func newFolder(objects []documents.Object) *folder {
	made := &folder{
		byResource: make(map[schema.GroupVersionResource][]*unstructured.Unstructured),
		kinds:      make(map[schema.GroupVersionResource]string),
		namespaces: make(map[string]*corev1.Namespace), configMaps: make(map[[2]string]*corev1.ConfigMap),
	}
	plurals := make(map[schema.GroupKind]string)
	for _, object := range objects {
		if object.GetKind() == "CustomResourceDefinition" {
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			plural, _, _ := unstructured.NestedString(object.Object, "spec", "names", "plural")
			plurals[schema.GroupKind{Group: group, Kind: kind}] = plural
			made.define(object, group, plural, kind)
		}
	}
	for _, object := range objects {
		kind := object.GroupVersionKind()
		if kind.Group == cliGroup {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if plural := plurals[kind.GroupKind()]; plural != "" {
			resource.Resource = plural
		}
		made.byResource[resource] = append(made.byResource[resource], object.Unstructured)
		made.kinds[resource] = kind.Kind
		if kind.Group != "" {
			continue
		}
		convert := runtime.DefaultUnstructuredConverter.FromUnstructured
		switch kind.Kind {
		case "Namespace":
			found := &corev1.Namespace{}
			if convert(object.Object, found) == nil {
				made.namespaces[object.GetName()] = found
			}
		case "ConfigMap":
			found := &corev1.ConfigMap{}
			if convert(object.Object, found) == nil {
				made.configMaps[[2]string{object.GetNamespace(), object.GetName()}] = found
			}
		}
	}
	return made
}

func (f *folder) known(namespace string) *corev1.Namespace { return f.namespaces[namespace] }

// Get returns a ConfigMap.
func (f *folder) Get(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	found := f.configMaps[[2]string{namespace, name}]
	if found == nil && namespace == "default" {
		found = f.configMaps[[2]string{"", name}]
	}
	if found == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return found, nil
}

// RawAbsPath answers a GET of the path of an object or of a list.
func (f *folder) RawAbsPath(_ context.Context, path, method string, _ io.Reader) ([]byte, error) {
	if method != "" && method != "GET" {
		return nil, fmt.Errorf("documents of a folder stand for the cluster, which answer GET only, not %s", method)
	}
	asked, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	resource, namespace, name, err := parsePath(asked.Path)
	if err != nil {
		return nil, err
	}
	chosen := labels.Everything()
	for parameter, values := range asked.Query() {
		switch parameter {
		case "labelSelector":
			if chosen, err = labels.Parse(values[0]); err != nil {
				return nil, err
			}
		case "limit", "resourceVersion", "resourceVersionMatch", "timeoutSeconds":
		default:
			return nil, fmt.Errorf("documents of a folder stand for the cluster, which do not know the parameter %s", parameter)
		}
	}
	found := []any{}
	for _, object := range f.byResource[resource] {
		isOf := namespace == "" || object.GetNamespace() == namespace || namespace == "default" && object.GetNamespace() == ""
		if !isOf || !chosen.Matches(labels.Set(object.GetLabels())) {
			continue
		}
		if name == "" {
			found = append(found, object.Object)
		} else if object.GetName() == name {
			return json.Marshal(object.Object)
		}
	}
	if name != "" {
		return nil, apierrors.NewNotFound(resource.GroupResource(), name)
	}
	return json.Marshal(map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": f.kinds[resource] + "List",
		"metadata": map[string]any{}, "items": found,
	})
}

// parsePath returns what the path of an API server is of.
func parsePath(path string) (resource schema.GroupVersionResource, namespace, name string, err error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		resource.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		resource.Group, resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return resource, "", "", fmt.Errorf("documents of a folder stand for the cluster, which do not have the path %s", path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	resource.Resource = parts[0]
	switch len(parts) {
	case 1:
	case 2:
		name = parts[1]
	default:
		err = fmt.Errorf("documents of a folder stand for the cluster, which do not have the path %s", path)
	}
	return resource, namespace, name, err
}

// CanI is for rules that ask whether the worker itself may do something.
func (f *folder) CanI(context.Context, string, string, string, string, string) (bool, string, error) {
	return false, "documents of a folder stand for the cluster, and have no authorizer", nil
}

func (f *folder) of(group, version, kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for resource, objects := range f.byResource {
		if resource.Group == group && (version == "" || version == "*" || resource.Version == version) && f.kinds[resource] == kind {
			found = append(found, objects...)
		}
	}
	return found
}

// GetResource returns an object.
func (f *folder) GetResource(
	_ context.Context, apiVersion, kind, namespace, name string, _ ...string,
) (*unstructured.Unstructured, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	for _, object := range f.of(version.Group, version.Version, kind) {
		if object.GetName() == name && (namespace == "" || object.GetNamespace() == namespace) {
			return object.DeepCopy(), nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: version.Group, Resource: kind}, name)
}

// ListResource returns objects.
func (f *folder) ListResource(
	_ context.Context, apiVersion, kind, namespace string, chosen *metav1.LabelSelector,
) (*unstructured.UnstructuredList, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	selector := labels.Everything()
	if chosen != nil {
		if selector, err = metav1.LabelSelectorAsSelector(chosen); err != nil {
			return nil, err
		}
	}
	made := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": apiVersion, "kind": kind + "List"}}
	for _, object := range f.of(version.Group, version.Version, kind) {
		if (namespace == "" || object.GetNamespace() == namespace) && selector.Matches(labels.Set(object.GetLabels())) {
			made.Items = append(made.Items, *object.DeepCopy())
		}
	}
	return made, nil
}

// GetResources is for targets of mutate rules, which are not served.
func (f *folder) GetResources(
	context.Context, string, string, string, string, string, string, *metav1.LabelSelector,
) ([]engineapi.Resource, error) {
	return nil, nil
}

// GetNamespace returns the Namespace of the request, or another one.
func (f *folder) GetNamespace(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	if found := namespaceOf(ctx, name); found != nil {
		return found, nil
	}
	if found := f.namespaces[name]; found != nil {
		return found, nil
	}
	// One that is not known has a name.
	made := &corev1.Namespace{}
	made.Name, made.Labels = name, map[string]string{corev1.LabelMetadataName: name}
	return made, nil
}

// clusterScoped are the built-in kinds without a Namespace that parameters may have.
var clusterScoped = []string{
	"Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "StorageClass", "PriorityClass", "IngressClass",
	"CustomResourceDefinition", "RuntimeClass",
}

// IsNamespaced reports whether objects of the kind have a Namespace.
func (f *folder) IsNamespaced(group, version, kind string) (bool, error) {
	for _, object := range f.of(group, version, kind) {
		if object.GetNamespace() != "" {
			return true, nil
		}
	}
	for _, objects := range f.byResource {
		for _, object := range objects {
			if object.GetKind() != "CustomResourceDefinition" {
				continue
			}
			if of, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind"); of == kind {
				scope, _, _ := unstructured.NestedString(object.Object, "spec", "scope")
				return scope == "Namespaced", nil
			}
		}
	}
	return !slices.Contains(clusterScoped, kind), nil
}
