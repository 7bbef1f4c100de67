package main

import (
	"strings"
	"testing"
)

// scaleOf is a request for the Scale of an object.
func scaleOf(group, resource string) string {
	return `{"uid": "1", "operation": "UPDATE", "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
		"resource": {"group": "` + group + `", "version": "v1", "resource": "` + resource + `"}, "subResource": "scale",
		"namespace": "shop", "name": "web", "object": {"apiVersion": "autoscaling/v1", "kind": "Scale",
		"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 9}}}`
}

const gadgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgetry.example.com}
spec:
  group: example.com
  names: {kind: Gadget, plural: gadgetry}
  versions: [{name: v1}]`

// Rules name a subresource with the kind of its resource, and the object has another one.
func TestARuleForASubresourceMatchesTheKindOfItsResource(t *testing.T) {
	for _, each := range []struct{ kind, group, resource string }{
		{"Deployment", "apps", "deployments"},
		{"apps/v1/StatefulSet", "apps", "statefulsets"},
		{"Gadget", "example.com", "gadgetry"},
		{"Rollout", "example.com", "rollouts"},
	} {
		text := rules("few", enforce, "name: few\nvalidate: {message: few, pattern: {spec: {replicas: \"<=3\"}}}")
		s, said := stateOf(t, strings.ReplaceAll(text, "[Pod]", "["+each.kind+"/scale]"), gadgets)
		if len(said) > 0 {
			t.Fatal(said)
		}
		if found := s.called(t, "few/few", scaleOf(each.group, each.resource), ""); !strings.Contains(found.message, "few") {
			t.Errorf("%s: found %q, %v, expected a denial", each.kind, found.message, found.err)
		}
		if found := s.called(t, "few/few", scaleOf("apps", "replicasets"), ""); found.message != "" || found.err != nil {
			t.Errorf("%s: found %q, %v for a ReplicaSet, expected none", each.kind, found.message, found.err)
		}
	}
}
