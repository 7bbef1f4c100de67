package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

type members = map[string]any

// some returns some of the members.
func (d *drawn) some(of members) members {
	made := make(members)
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if d.IntN(4) > 0 {
			made[key] = of[key]
		}
	}
	return made
}

func (d *drawn) list(most int, element func() any) []any {
	made := []any{}
	for range d.IntN(most + 1) {
		made = append(made, element())
	}
	return made
}

// text returns a text, seldom one that YAML may read as another.
func (d *drawn) text() any {
	if d.IntN(8) > 0 {
		return one[any](d, "a", "b", "c", "app:1.2", int64(80), true)
	}
	return one[any](d, "a", "b", "c", "app:1.2", "", "yes", "1e3", "0x10", "null", "~", "a: b", "#c", "- d", "x\ny", "tab\t", "\u00e4", "\u2028", "\x00", " e ",
		"it is a longer text that an encoder of YAML may fold, because it has more than eighty characters in one line", int64(80), int64(443), true, 1.5, nil)
}

func (d *drawn) name() any { return one[any](d, "a", "b", "c", "d") }

func (d *drawn) labels() any {
	made := make(members)
	for range d.IntN(3) {
		made[fmt.Sprint(one[any](d, "app", "team", "example.com/x", "y", "<<", "true"))] = d.text()
	}
	return made
}

// container is one that may be wrong: names may be missing or equal.
func (d *drawn) container() any {
	return d.some(members{
		"name": d.name(), "image": d.text(), "command": d.list(3, d.text), "imagePullPolicy": "Always", "tty": true,
		"env": d.list(3, func() any {
			return d.some(members{"name": d.name(), "value": d.text(), "valueFrom": members{"fieldRef": d.some(members{"apiVersion": "v1", "kind": "x"})}})
		}),
		"ports": d.list(3, func() any {
			return d.some(members{"containerPort": one[any](d, int64(80), int64(443), int64(8080)), "protocol": one[any](d, "TCP", "UDP"), "name": d.name()})
		}),
		"resources":       d.some(members{"limits": d.labels(), "requests": d.labels(), "claims": d.list(2, func() any { return members{"name": d.name()} })}),
		"securityContext": d.some(members{"privileged": true, "capabilities": d.some(members{"drop": d.list(2, d.name), "add": d.list(2, d.name)})}),
		"volumeMounts":    d.list(2, func() any { return d.some(members{"name": d.name(), "mountPath": d.name()}) }),
	})
}

func (d *drawn) podSpec() members {
	return d.some(members{
		"containers": d.list(3, d.container), "initContainers": d.list(2, d.container), "hostNetwork": true, "serviceAccountName": d.text(),
		"volumes": d.list(3, func() any {
			return d.some(members{"name": d.name(), "emptyDir": members{}, "hostPath": d.some(members{"path": d.text()})})
		}),
		"tolerations":      d.list(2, func() any { return d.some(members{"key": d.name(), "operator": "Exists", "effect": d.text()}) }),
		"imagePullSecrets": d.list(2, func() any { return members{"name": d.name()} }), "nodeSelector": d.labels(),
		"securityContext": d.some(members{"runAsUser": int64(1000), "sysctls": d.list(2, func() any { return members{"name": d.name(), "value": d.text()} }),
			"supplementalGroups": d.list(2, func() any { return one[any](d, int64(1), int64(2)) })}),
		"topologySpreadConstraints": d.list(2, func() any {
			return d.some(members{"topologyKey": d.name(), "whenUnsatisfiable": d.name(), "maxSkew": int64(1), "labelSelector": members{"matchLabels": d.labels()}})
		}),
		"hostAliases": d.list(2, func() any { return d.some(members{"ip": d.name(), "hostnames": d.list(2, d.name)}) }),
		"affinity":    d.some(members{"nodeAffinity": members{"x": d.list(2, func() any { return d.list(2, d.text) })}}), "overhead": d.labels(),
	})
}

// sample returns an object of a kind with the spec of a Pod where it has one.
func (d *drawn) sample(kind string) members {
	metadata := d.some(members{
		"labels": d.labels(), "annotations": d.labels(), "finalizers": d.list(2, d.name),
		"managedFields": d.list(2, func() any {
			return d.some(members{"manager": d.name(), "apiVersion": "v1", "fieldsV1": members{"f:spec": members{`k:{"name":"a"}`: members{".": members{}, "f:x": members{}}}}})
		}),
	})
	metadata["name"] = "web"
	spec := d.podSpec()
	switch kind {
	case "Deployment":
		spec = d.some(members{"replicas": int64(1), "template": d.some(members{"metadata": members{"labels": d.labels()}, "spec": spec}), "selector": members{"matchLabels": d.labels()}})
	case "Service":
		spec = d.some(members{"type": "NodePort", "selector": d.labels(), "clusterIPs": d.list(2, d.name), "ports": d.list(3, func() any {
			return d.some(members{"port": one[any](d, int64(80), int64(443)), "protocol": one[any](d, "TCP", "UDP"), "targetPort": d.text(), "name": d.name()})
		})})
	}
	made := members{"apiVersion": one(d, "v1", "v2"), "kind": kind, "metadata": metadata, "spec": spec}
	if kind == "Deployment" {
		made["apiVersion"] = "apps/v1"
	}
	if d.IntN(2) == 0 {
		made["status"] = members{"conditions": d.list(2, func() any { return d.some(members{"type": d.name(), "status": d.text()}) })}
	}
	return made
}

// patch makes a patch of an object: with anchors, less fields, other values and directives.
func (d *drawn) patch(value any) any {
	switch value := value.(type) {
	case members:
		made := make(members)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			switch d.IntN(12) {
			case 0:
				made["("+key+")"] = one(d, value[key], "*", "?*")
			case 1:
				made["+("+key+")"] = value[key]
			case 2:
				made["<("+key+")"] = one(d, value[key], "*")
			case 3:
				made[key] = d.text()
			case 4, 5, 6:
			default:
				made[key] = d.patch(value[key])
			}
		}
		if d.IntN(30) == 0 {
			made["$patch"] = one(d, "delete", "replace")
		}
		return made
	case []any:
		made := []any{}
		for _, element := range value {
			if d.IntN(3) > 0 {
				made = append(made, d.patch(element))
			}
		}
		return made
	}
	return one(d, value, value, d.text())
}

// The engine patches a part of an object as it patches the object.
func TestPartsArePatchedAsObjects(t *testing.T) {
	parts, changed := 0, 0
	for seed := range uint64(400) {
		d := &drawn{rand.New(rand.NewPCG(seed, 1))}
		kind := one(d, "Pod", "Pod", "Deployment", "Service", "Widget")
		object := d.sample(kind)
		source := d.sample(kind)
		if d.IntN(2) == 0 {
			source = object
		}
		patch, _ := d.patch(source).(members)
		delete(patch, "apiVersion")
		delete(patch, "kind")
		mutate := members{"patchStrategicMerge": patch}
		if d.IntN(4) == 0 {
			mutate = members{"foreach": []any{members{"list": "['a', 'b']", "patchStrategicMerge": patch}}}
		}
		document := members{
			"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": members{"name": "p"}, "spec": members{"rules": []any{
				members{"name": "r", "match": members{"any": []any{members{"resources": members{"kinds": []any{kind}}}}}, "mutate": mutate},
			}},
		}
		s, said := stateOf(t, string(asJSON(t, document)))
		if len(said) > 0 {
			t.Fatal(said)
		}
		request := admissionv1.AdmissionRequest{Operation: "CREATE", Namespace: "shop", Object: runtime.RawExtension{Raw: asJSON(t, object)}}
		request.Kind.Kind, request.Kind.Version = kind, "v1"
		if kind == "Deployment" {
			request.Kind.Group = "apps"
		}
		context, err := newPolicyContext(&request, kyvernov2.RequestInfo{})
		if err != nil {
			t.Fatal(err)
		}
		policy := s.served[0].policy
		if patches := s.mergePatches[policy]; patches != nil {
			if _, lacks := patches.partOf(context.newResource.Object); len(*lacks) > 0 {
				parts++
			}
		}
		if compare(t, seed, s, context.with(policy), asJSON(t, document)) {
			changed++
		}
	}
	if parts < 200 || changed < 200 {
		t.Errorf("%d objects had parts, %d were changed", parts, changed)
	}
}

// compare compares both, and returns whether the object is changed.
func compare(t *testing.T, seed uint64, s *state, of *policyContext, document []byte) bool {
	t.Helper()
	type found struct{ raised, object, rules any }
	read := func(mutate func(context.Context, *policyContext) engineapi.EngineResponse) (got found) {
		defer func() {
			// Kyverno panics for some patches.
			if raised := recover(); raised != nil {
				got.raised = fmt.Sprint(raised)
			}
		}()
		response := mutate(t.Context(), of)
		got.object = response.PatchedResource.Object
		for _, rule := range response.PolicyResponse.Rules {
			got.rules = fmt.Sprint(got.rules, rule.Name(), rule.Status(), rule.Message())
		}
		return got
	}
	before := asJSON(t, of.newResource.Object)
	part := read(s.mutated)
	whole := read(func(ctx context.Context, of *policyContext) engineapi.EngineResponse { return s.engine.Mutate(ctx, of) })
	if !reflect.DeepEqual(part, whole) {
		t.Errorf("%d: %s of %s\nfound %v\nwithout parts %v", seed, document, before, part, whole)
	}
	if after := asJSON(t, of.newResource.Object); string(after) != string(before) {
		t.Errorf("%d: the object became %s from %s", seed, after, before)
	}
	return !reflect.DeepEqual(whole.object, any(of.newResource.Object)) && whole.raised == nil
}
