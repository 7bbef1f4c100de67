package main

import (
	"strings"
	"sync"

	documents "admission-gateway.io/engines"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kubeutils "github.com/kyverno/kyverno/pkg/utils/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// builtIn are the kinds of Kubernetes by their resource.
var builtIn = sync.OnceValue(func() map[schema.GroupVersionResource]schema.GroupVersionKind {
	made := make(map[schema.GroupVersionResource]schema.GroupVersionKind)
	for kind := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		made[resource] = kind
	}
	return made
})

// topLevel returns the kind by which rules match a request: that of its resource. The object of deployments/scale is a Scale,
// and rules name it Deployment/scale (kyverno:pkg/webhooks/handlers/enrich.go).
func (s *state) topLevel(r *request) schema.GroupVersionKind {
	if r.admission.SubResource != "" {
		resource := schema.GroupVersionResource(r.admission.Resource)
		if found, isKnown := s.data.kindFor(resource); isKnown {
			return found
		}
		if found, isKnown := s.named[resource.Resource]; isKnown {
			return schema.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: found}
		}
	}
	return schema.GroupVersionKind(r.admission.Kind)
}

// kindFor returns the kind of a resource: Kubernetes' own, or one that the folder defines.
func (f *folder) kindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	if found, isKnown := builtIn()[resource]; isKnown {
		return found, true
	}
	found, isKnown := f.kinds[resource]
	return resource.GroupVersion().WithKind(found), isKnown
}

// kindFor asks the cluster.
func (c *cluster) kindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	found, err := c.discovery.GetGVKFromGVR(resource)
	return found, err == nil
}

// define adds the kind of a CustomResourceDefinition in all its versions.
func (f *folder) define(definition documents.Object, group, resource, kind string) {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, each := range versions {
		members, _ := each.(map[string]any)
		version, _ := members["name"].(string)
		f.kinds[schema.GroupVersionResource{Group: group, Version: version, Resource: resource}] = kind
	}
}

// name remembers the kinds that rules name with a subresource, by their plural names: a folder need not define them.
func (s *state) name(policy kyvernov1.PolicyInterface) {
	for _, rule := range policy.GetSpec().Rules {
		for _, text := range rule.MatchResources.GetKinds() {
			_, _, kind, subresource := kubeutils.ParseKindSelector(text)
			if subresource == "" || strings.Contains(kind, "*") {
				continue
			}
			plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
			s.named[plural.Resource] = kind
		}
	}
}
