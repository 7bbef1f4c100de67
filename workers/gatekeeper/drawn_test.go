package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	mutationsunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// drawer draws documents and objects, the same for the same seed.
type drawer struct{ *rand.Rand }

func draw(seed int) drawer { return drawer{rand.New(rand.NewSource(int64(seed)))} }

func choose[T any](d drawer, from ...T) T { return from[d.Intn(len(from))] }

// location draws where a mutator changes a Pod. Several mutators often meet, and sometimes conflict.
func (d drawer) location() string {
	name := choose(d, "main", "side", "*", "new")
	return choose(d,
		"spec.priorityClassName", "spec.hostname", "spec.securityContext", "spec.securityContext.runAsUser", "spec.a.b.c",
		"spec.containers[name: "+name+"].image", "spec.containers[name: "+name+"].tty",
		"spec.containers[name: "+name+"].securityContext.runAsUser", "spec.containers[image: "+name+"].tty",
		"spec.containers[name: "+name+"].args", "spec.containers[name: "+name+"].ports[containerPort: 80].protocol",
		"spec.containers[name: "+name+"]", "spec.volumes[name: "+name+"].emptyDir", "spec.containers.main", "spec.tolerations",
	)
}

func (d drawer) value() any {
	return choose[any](d, "low", "", true, 7.0, 1.5, map[string]any{}, map[string]any{"name": "new", "image": "i"}, []any{"--a", 1.0}, nil)
}

func (d drawer) match() map[string]any {
	match := map[string]any{}
	switch d.Intn(10) {
	case 0:
		match["namespaces"] = []any{choose(d, "shop", "s*", "other")}
	case 1:
		match["excludedNamespaces"] = []any{choose(d, "shop", "*p", "other")}
	case 2:
		match["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"tier": choose(d, "front", "back")}}
	case 3:
		match["labelSelector"] = map[string]any{"matchLabels": map[string]any{"app": choose(d, "web", "db")}}
	case 4:
		match["name"] = choose(d, "web", "web-*", "other")
	case 5:
		match["scope"] = choose(d, "Cluster", "Namespaced", "*")
	case 6:
		match["source"] = choose(d, "Original", "Generated", "All")
	case 7:
		match["kinds"] = []any{map[string]any{"apiGroups": []any{choose(d, "", "*", "apps")}, "kinds": []any{choose(d, "Pod", "*")}}}
	}
	return match
}

// mutator draws a mutator, which need not be valid.
func (d drawer) mutator(name string) map[string]any {
	kind := choose(d, "Assign", "Assign", "AssignMetadata", "ModifySet", "AssignImage")
	version := choose(d, "v1", "v1beta1", "v1alpha1")
	spec := map[string]any{"location": d.location(), "match": d.match()}
	parameters := map[string]any{}
	if kind != "AssignMetadata" {
		applied := map[string]any{"groups": []any{""}, "versions": []any{"v1"}, "kinds": []any{"Pod"}}
		if d.Intn(4) == 0 {
			applied["operations"] = []any{choose(d, "CREATE", "UPDATE", "*")}
		}
		spec["applyTo"] = []any{applied}
		if d.Intn(4) == 0 {
			parameters["pathTests"] = []any{map[string]any{
				"subPath":   choose(d, spec["location"].(string), "spec", "spec.containers[name: main]", "spec.securityContext"),
				"condition": choose(d, "MustExist", "MustNotExist"),
			}}
		}
	}
	switch kind {
	case "Assign":
		parameters["assign"] = map[string]any{"value": d.value()}
		if d.Intn(5) == 0 {
			parameters["assign"] = map[string]any{"fromMetadata": map[string]any{"field": choose(d, "name", "namespace")}}
		}
	case "AssignMetadata":
		spec["location"] = choose(d, "metadata.labels.app", "metadata.labels.owner", `metadata.annotations."a.b/c"`)
		parameters["assign"] = map[string]any{"value": choose(d, "x", "y")}
	case "ModifySet":
		parameters["values"] = map[string]any{"fromList": []any{choose[any](d, "--a", "--z", int64(1), map[string]any{"key": "k"}), "--b"}}
		if d.Intn(2) == 0 {
			parameters["operation"] = choose(d, "merge", "prune")
		}
	case "AssignImage":
		version = "v1alpha1"
		parameters[choose(d, "assignDomain", "assignDomain", "x")] = choose(d, "mirror.example", "localhost:5000")
		delete(parameters, "x")
		if d.Intn(2) == 0 || len(parameters) == 0 {
			parameters["assignTag"] = choose(d, ":2", "@sha256:"+strings.Repeat("a", 64))
		}
		if d.Intn(3) == 0 {
			parameters["assignPath"] = "team/other"
		}
	}
	spec["parameters"] = parameters
	return map[string]any{
		"apiVersion": "mutations.gatekeeper.sh/" + version, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}
}

// mutators draws documents.
func (d drawer) mutators(t testing.TB, count int) []document {
	t.Helper()
	var drawn strings.Builder
	for index := range count {
		text, err := json.Marshal(d.mutator(fmt.Sprintf("m%d", index)))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&drawn, "%s\n---\n", text)
	}
	return documentsOf(t, drawn.String())
}

// pod draws an object, which need not be what the API server would admit.
func (d drawer) pod() map[string]any {
	container := func(name string) map[string]any {
		made := map[string]any{"name": name, "image": choose(d, "app", "registry.example/team/app:1", "app@sha256:"+strings.Repeat("b", 64))}
		if d.Intn(2) == 0 {
			made["args"] = []any{"--a", choose[any](d, "--b", int64(1))}
		}
		if d.Intn(3) == 0 {
			made["securityContext"] = map[string]any{"runAsUser": int64(d.Intn(3))}
		}
		if d.Intn(3) == 0 {
			made["ports"] = []any{map[string]any{"containerPort": int64(choose(d, 80, 443))}}
		}
		return made
	}
	spec := map[string]any{"containers": []any{container("main"), container(choose(d, "side", "other"))}}
	for key, value := range map[string]any{
		"priorityClassName": "high", "securityContext": map[string]any{"runAsUser": json.Number("1")}, "ratio": json.Number("0.10"),
		"large": json.Number("12345678901234567890"), "tolerations": []any{}, "a": choose[any](d, "text", map[string]any{}),
	} {
		if d.Intn(3) == 0 {
			spec[key] = value
		}
	}
	metadata := map[string]any{choose(d, "name", "generateName"): "web-"}
	if d.Intn(2) == 0 {
		metadata["namespace"] = "shop"
	}
	if d.Intn(2) == 0 {
		metadata["labels"] = map[string]any{"app": "web"}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
}

// engineOf returns Gatekeeper's own system with the documents that the policy has found valid.
func engineOf(t testing.TB, objects []document, isBad map[string]bool) *mutation.System {
	t.Helper()
	system := mutation.NewSystem(mutation.SystemOpts{NewUUID: func() uuid.UUID { return uuid.Nil }})
	for _, object := range objects {
		if isBad[object.GetName()] {
			continue
		}
		_ = system.Upsert(engineMutator(t, object)) // an error is a conflict
	}
	return system
}

func engineMutator(t testing.TB, object document) (made mutationtypes.Mutator) {
	t.Helper()
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	decode := func(into any) {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	switch object.GetKind() {
	case "Assign":
		read := &mutationsunversioned.Assign{}
		decode(read)
		made, err = mutators.MutatorForAssign(read)
	case "AssignMetadata":
		read := &mutationsunversioned.AssignMetadata{}
		decode(read)
		made, err = mutators.MutatorForAssignMetadata(read)
	case "ModifySet":
		read := &mutationsunversioned.ModifySet{}
		decode(read)
		if read.Spec.Parameters.Operation == "" {
			read.Spec.Parameters.Operation = "merge"
		}
		for index, value := range read.Spec.Parameters.Values.FromList {
			if number, ok := value.(float64); ok {
				read.Spec.Parameters.Values.FromList[index] = int64(number) // as the API server's decoder reads it
			}
		}
		made, err = mutators.MutatorForModifySet(read)
	case "AssignImage":
		read := &mutationsunversioned.AssignImage{}
		decode(read)
		made, err = mutators.MutatorForAssignImage(read)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return made
}

// For drawn mutators and objects the policy's object, or its error, is that of the engine; and the policy leaves alone
// what it has mutated, as long as the engine does.
func TestDrawnMutatorsChangeObjectsAsTheEngine(t *testing.T) {
	mutated, refused, conflicting := 0, 0, 0
	for seed := range 600 {
		d := draw(seed)
		objects := d.mutators(t, 1+d.Intn(6))
		set, problems := newMutatorSet(objects, noProviders(t))
		isBad := map[string]bool{}
		for _, each := range problems {
			object, _ := problemDocument(each)
			isBad[object.GetName()] = true
		}
		conflicting += len(set.conflicting)
		engine := engineOf(t, objects, isBad)
		request := creationOf(&unstructured.Unstructured{Object: d.pod()})
		request.Operation, request.Namespace = choose(d, "CREATE", "UPDATE"), "shop"
		review := request.review(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: front}}")
		for round := range 2 {
			err := (&mutationPolicy{mutators: set, excluder: noConfig()}).review(t.Context(), review)
			want, wantErr := engineObject(t, engine, request)
			if wantErr != nil {
				refused++
				// The identity of a mutation is random.
				text := denialOf(t, err).Message
				if _, after, isMutation := strings.Cut(text, " for mutator "); isMutation && !strings.HasSuffix(wantErr.Error(), after) || !isMutation && text != wantErr.Error() {
					t.Fatalf("seed %d: got %q, expected %q", seed, text, wantErr)
				}
				break
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			found := patched(t, request, review)
			if !same(t, found, want) {
				t.Fatalf("seed %d, round %d: got\n%v, expected\n%v, of %v", seed, round, found, want, objects)
			}
			if round == 0 && !same(t, found, request.Object) {
				mutated++
			}
			request.Object = found
			review = request.review(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: front}}")
		}
	}
	if mutated < 100 || refused < 20 || conflicting < 20 {
		t.Errorf("%d mutated, %d refused, %d conflicting: the drawn ones say too little", mutated, refused, conflicting)
	}
}

// engineObject returns the object of the request as the engine leaves it.
func engineObject(t testing.TB, engine *mutation.System, request created) (map[string]any, error) {
	t.Helper()
	read, err := requestOf(request.review(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(read.Object.Raw); err != nil {
		t.Fatal(err)
	}
	before := object.GetNamespace()
	object.SetNamespace("shop")
	namespace, err := namespaceOf(request.review(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: front}}"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = engine.Mutate(t.Context(), &mutationtypes.Mutable{
		Object: object, Namespace: namespace, Username: "alice", Source: mutationtypes.SourceTypeOriginal,
		Operation: admissionv1.Operation(request.Operation),
	})
	object.SetNamespace(before)
	return object.Object, err
}

// The mutators that conflict do not depend on the order of the documents, and are those of the engine.
func TestDrawnConflictsAreThoseOfTheEngineInAnyOrder(t *testing.T) {
	for seed := range 100 {
		d := draw(seed)
		objects := d.mutators(t, 8)
		set, problems := newMutatorSet(objects, noProviders(t))
		isBad := map[string]bool{}
		for _, each := range problems {
			object, _ := problemDocument(each)
			isBad[object.GetName()] = true
		}
		engine := engineOf(t, objects, isBad)
		names := map[string]bool{}
		for _, object := range objects {
			if isBad[object.GetName()] {
				continue
			}
			id := engineMutator(t, object).ID()
			others := engine.GetConflicts(id)
			if delete(others, id); len(others) > 0 {
				names[mutatorName(id)] = true
			}
		}
		d.Shuffle(len(objects), func(a, b int) { objects[a], objects[b] = objects[b], objects[a] })
		shuffled, _ := newMutatorSet(objects, noProviders(t))
		want := slices.Sorted(maps.Keys(names))
		if !slices.Equal(set.conflicting, want) || !slices.Equal(shuffled.conflicting, want) {
			t.Errorf("seed %d: got %v and %v, expected %v", seed, set.conflicting, shuffled.conflicting, want)
		}
	}
}
