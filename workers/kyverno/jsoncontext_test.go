package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/go-logr/logr"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	enginecontext "github.com/kyverno/kyverno/pkg/engine/context"
	"github.com/kyverno/kyverno/pkg/engine/context/loaders"
	"github.com/kyverno/kyverno/pkg/engine/policycontext"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// drawn makes values of JSON, and requests with them.
type drawn struct{ *rand.Rand }

func one[T any](d *drawn, of ...T) T { return of[d.IntN(len(of))] }

func (d *drawn) object(depth int) map[string]any {
	made := make(map[string]any)
	for range d.IntN(4) {
		made[one(d, "a", "b", "c", "name")] = d.value(depth - 1)
	}
	return made
}

func (d *drawn) value(depth int) any {
	switch kind := d.IntN(8); {
	case depth > 0 && kind < 3:
		return d.object(depth)
	case depth > 0 && kind == 3:
		made := []any{}
		for range d.IntN(4) {
			made = append(made, d.value(depth-1))
		}
		return made
	case kind == 4:
		return int64(d.IntN(9))
	case kind == 5:
		return float64(d.IntN(90)) / 8
	case kind == 6:
		return one[any](d, nil, true)
	}
	return one(d, "x", "y", "{{ a }}", "")
}

func (d *drawn) pod() map[string]any {
	containers := []any{}
	for _, name := range []string{"zulu", "alpha", "mike"}[:d.IntN(4)] {
		containers = append(containers, map[string]any{"name": name, "image": one(d, "nginx", "ghcr.io/x/y:1", ""), "x": d.value(2)})
	}
	metadata := map[string]any{"name": "web", "labels": d.object(1)}
	if d.IntN(2) == 0 {
		metadata["namespace"] = "other"
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": map[string]any{"containers": containers, "n": d.value(2)}}
}

func asJSON(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// request returns an AdmissionRequest for a Pod or a Namespace.
func (d *drawn) request(t testing.TB) (admissionv1.AdmissionRequest, kyvernov2.RequestInfo) {
	t.Helper()
	members := map[string]any{
		"uid": "1", "operation": one(d, "CREATE", "UPDATE", "DELETE"), "namespace": one(d, "", "shop"), "subResource": one(d, "", "status"),
		"kind":     map[string]any{"version": "v1", "kind": one(d, "Pod", "Namespace")},
		"resource": map[string]any{"version": "v1", "resource": "pods"}, "dryRun": d.IntN(2) == 0,
		"userInfo": map[string]any{"username": one(d, "ann", "system:serviceaccount:a:b", "system:serviceaccount:a"), "groups": []any{"g"}},
		"options":  map[string]any{"kind": "CreateOptions"}, "object": nil,
	}
	if members["operation"] != "DELETE" {
		members["object"] = d.pod()
	}
	if members["operation"] != "CREATE" {
		members["oldObject"] = d.pod()
	}
	var made admissionv1.AdmissionRequest
	if err := json.Unmarshal(asJSON(t, members), &made); err != nil {
		t.Fatal(err)
	}
	info := kyvernov2.RequestInfo{Roles: []string{"shop:r"}, AdmissionUserInfo: authenticationv1.UserInfo{Username: made.UserInfo.Username}}
	return made, info
}

// queries are asked of both contexts. The first finds everything.
var queries = []string{
	"@", "a", "a.b || 'none'", "request.object.spec.containers[].name", "images", "images.containers.zulu.registry", "entry", "entry.a",
	"request.object.metadata.labels", "element.name", "elementIndex0", "sort_by(request.object.spec.containers, &name)", "later", "other.a",
	"length(request.object.spec.containers)", "a.", " ", "serviceAccountName", "request.operation", "target.metadata.name",
}

// step changes a context, or asks it; it answers the same however often it is called for contexts with the same content.
type step struct {
	text string
	call func(enginecontext.Interface) (any, error)
}

func (d *drawn) step(t testing.TB) step {
	name := one(d, "a", "b", "a.b", "entry", "request.object.metadata.labels.x", "images.y", `"q.r".s`, "\"")
	text, pod := asJSON(t, d.value(3)), asJSON(t, d.pod())
	// Each context gets values of its own: Kyverno's changes them.
	value := func(text []byte) (read any) {
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		return read
	}
	object := func() map[string]any { return value(pod).(map[string]any) }
	index, query := d.IntN(3), one(d, queries...)
	changes := func(what string, call func(enginecontext.Interface) error) step {
		return step{fmt.Sprintf("%s %s %s %s", what, name, text, pod), func(c enginecontext.Interface) (any, error) { return nil, call(c) }}
	}
	switch d.IntN(17) {
	case 0:
		return changes("AddVariable", func(c enginecontext.Interface) error { return c.AddVariable(name, value(text)) })
	case 1:
		return changes("AddContextEntry", func(c enginecontext.Interface) error { return c.AddContextEntry("entry", text) })
	case 2:
		return changes("ReplaceContextEntry", func(c enginecontext.Interface) error { return c.ReplaceContextEntry("entry", text) })
	case 3:
		return changes("AddResource", func(c enginecontext.Interface) error { return c.AddResource(object()) })
	case 4:
		return changes("AddOldResource", func(c enginecontext.Interface) error { return c.AddOldResource(object()) })
	case 5:
		return changes("SetTargetResource", func(c enginecontext.Interface) error { return c.SetTargetResource(object()) })
	case 6:
		return changes("AddOperation", func(c enginecontext.Interface) error { return c.AddOperation("UPDATE") })
	case 7:
		return step{"AddElement", func(c enginecontext.Interface) (any, error) {
			found, err := c.Query("request.object.spec.containers")
			if elements, isList := found.([]any); isList && index < len(elements) {
				return nil, c.AddElement(elements[index], index, index)
			}
			return found, err
		}}
	case 8:
		return changes("AddImageInfos", func(c enginecontext.Interface) error {
			return c.AddImageInfos(&unstructured.Unstructured{Object: object()}, configuration)
		})
	case 9:
		return step{"ImageInfo", func(c enginecontext.Interface) (any, error) { return c.ImageInfo(), nil }}
	case 10, 11:
		loaded := one(d, "later", "other", "entry")
		path := one(d, "a", "request.object.metadata", "later.a", "element.name", "images")
		entry := kyvernov1.ContextEntry{Name: loaded, Variable: &kyvernov1.Variable{JMESPath: path}}
		if d.IntN(2) == 0 {
			entry.Variable.SetDefault(map[string]any{"a": "default"})
		}
		return step{"AddDeferredLoader " + loaded + " " + path, func(c enginecontext.Interface) (any, error) {
			loader, err := enginecontext.NewDeferredLoader(loaded, loaders.NewVariableLoader(logr.Discard(), entry, c, jmes), logr.Discard())
			if err != nil {
				return nil, err
			}
			return nil, c.AddDeferredLoader(loader)
		}}
	case 12:
		return changes("Checkpoint", func(c enginecontext.Interface) error { c.Checkpoint(); return nil })
	case 13:
		return changes("Restore", func(c enginecontext.Interface) error { c.Restore(); return nil })
	case 14:
		return changes("Reset", func(c enginecontext.Interface) error { c.Reset(); return nil })
	case 15:
		path := one(d, "metadata.name", "spec.n", "x")
		return step{"HasChanged " + path, func(c enginecontext.Interface) (any, error) { return c.HasChanged(path) }}
	}
	return step{"Query " + query, func(c enginecontext.Interface) (any, error) { return c.Query(query) }}
}

// A context answers as Kyverno's own, whatever was done with both.
func TestContextsAreAsKyvernos(t *testing.T) {
	for seed := range uint64(300) {
		d := &drawn{rand.New(rand.NewPCG(seed, 0))}
		request, info := d.request(t)
		own, err := newPolicyContext(&request, info)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := policycontext.NewPolicyContextFromAdmissionRequest(jmes, request, info, own.kind, configuration)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(own.NewResource(), theirs.NewResource()) || !reflect.DeepEqual(own.OldResource(), theirs.OldResource()) {
			t.Fatalf("%d: objects %v, %v; Kyverno's %v, %v", seed, own.newResource, own.oldResource, theirs.NewResource(), theirs.OldResource())
		}
		var done []string
		for range 40 {
			next := d.step(t)
			done = append(done, next.text)
			found, err := next.call(own.JSONContext())
			wanted, wantedErr := next.call(theirs.JSONContext())
			if !reflect.DeepEqual(found, wanted) || fmt.Sprint(err) != fmt.Sprint(wantedErr) {
				t.Fatalf("%d: after %q found %v, %v; Kyverno's %v, %v", seed, done, found, err, wanted, wantedErr)
			}
			all, _ := own.JSONContext().Query("@")
			wantedAll, _ := theirs.JSONContext().Query("@")
			if !reflect.DeepEqual(all, wantedAll) {
				t.Fatalf("%d: after %q\n%s\nKyverno's\n%s", seed, done, asJSON(t, all), asJSON(t, wantedAll))
			}
			if own.JSONContext().QueryOperation() != theirs.JSONContext().QueryOperation() {
				t.Fatalf("%d: the operation after %q", seed, done)
			}
		}
	}
}
