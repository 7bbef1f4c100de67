package main

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"

	"admission-gateway.io/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// caller calls the policies of a worker over gRPC.
type caller struct {
	testing.TB
	connection *grpc.ClientConn
}

// serve serves the documents on a port of its own until the test ends.
func serve(t testing.TB, objects []document) *caller {
	t.Helper()
	server := worker.NewServer()
	served := newEngine(server, logTo(io.Discard))
	if err := served.load(objects); err != nil {
		t.Fatal(err)
	}
	return &caller{t, started(t, server)}
}

// started starts the server until the test ends, and returns a connection.
func started(t testing.TB, server *worker.Server) *grpc.ClientConn {
	t.Helper()
	addresses, err := server.Start(worker.Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	connection, err := grpc.NewClient(addresses[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = connection.Close()
		_ = server.Stop(context.Background())
	})
	return connection
}

// answered is a ReviewResponse.
type answered struct {
	Allowed bool
	Status  struct {
		Code            int
		Message, Reason string
	}
	Patch            []byte
	AuditAnnotations map[string]string
	Warnings         []string
}

// service is the name of the worker's service, whose messages the SDK has.
const service = "admissiongateway.worker.v1."

// call calls a method. The messages are made by their descriptors: their Go types belong to the SDK alone.
func (c *caller) call(method string, asked map[string]any, into any) {
	c.Helper()
	text, err := json.Marshal(asked)
	if err != nil {
		c.Fatal(err)
	}
	request, response := c.message(method+"Request"), c.message(method+"Response")
	if err := protojson.Unmarshal(text, request); err != nil {
		c.Fatal(err)
	}
	if err := c.connection.Invoke(c.Context(), "/"+service+"PolicyWorker/"+method, request, response); err != nil {
		c.Fatal(err)
	}
	if text, err = protojson.Marshal(response); err != nil {
		c.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		c.Fatal(err)
	}
}

func (c *caller) message(name string) *dynamicpb.Message {
	c.Helper()
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + name))
	if err != nil {
		c.Fatal(err)
	}
	return dynamicpb.NewMessage(found.(protoreflect.MessageDescriptor))
}

// review calls a policy with a request, and a Namespace that is empty if it is not known.
func (c *caller) review(policy string, request created, namespace string) answered {
	c.Helper()
	text, err := json.Marshal(request)
	if err != nil {
		c.Fatal(err)
	}
	var found answered
	c.call("Review", map[string]any{"policy": policy, "admissionRequest": text, "namespaceObject": []byte(namespace)}, &found)
	return found
}

// after returns the object of the request after the answer.
func (c *caller) after(request created, answer answered) map[string]any {
	c.Helper()
	text, err := json.Marshal(request.Object)
	if err != nil {
		c.Fatal(err)
	}
	if len(answer.Patch) == 0 {
		return objectOf(c, text)
	}
	return applied(c, text, answer.Patch)
}

func TestPoliciesAreListedWithWhatIsLeftOut(t *testing.T) {
	caller := serve(t, documentsOf(t, assign("list", "spec.containers[name: main].tty", "true")+assign("object", "spec.containers.tty", "true")+
		"---\n"+podsOfDeployments+"---\n"+needsLabel+"---\n"+constraintText("NeedsLabel", "owners", "{parameters: {}}")))
	var found struct {
		Policies []struct {
			Name, Description, ParametersSchema string
			Mutating                            bool
		}
	}
	caller.call("ListPolicies", map[string]any{}, &found)
	if len(found.Policies) != 3 {
		t.Fatalf("got %+v", found)
	}
	for _, policy := range found.Policies {
		if policy.Mutating != (policy.Name == "mutation") {
			t.Errorf("got %+v", policy)
		}
		if policy.Name == "mutation" && (policy.ParametersSchema != "" ||
			policy.Description != "All mutators of Gatekeeper (0), applied until nothing changes any more. Left out, because their schemas conflict: Assign/list, Assign/object.") {
			t.Errorf("got %+v", policy)
		}
	}
}

func TestAMutatorAnswersOverGRPCAsTheEngine(t *testing.T) {
	failing := assign("deep", "spec.containers.tty", "true")
	caller := serve(t, documentsOf(t, failing+mutator("v1", "Assign", "class",
		"applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]\nlocation: spec.replicas\nparameters: {assign: {value: 3}}")))
	request := creation(t, deployment)
	answer := caller.review("mutation", request, "")
	if !answer.Allowed || string(answer.Patch) != `[{"op":"replace","path":"/spec/replicas","value":3}]` {
		t.Errorf("got %+v", answer)
	}
	if answer = caller.review("mutation", creation(t, webPod), ""); answer.Allowed || answer.Status.Code != 500 {
		t.Errorf("got %+v", answer)
	}
}

// What the worker answers for a set of drawn mutators is what the engine makes of the object.
func TestDrawnMutatorsAnswerOverGRPCAsTheEngine(t *testing.T) {
	namespace := `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "front"}}}`
	for seed := range 8 {
		d := draw(1000 + seed)
		var objects []document
		for _, object := range d.mutators(t, 10) {
			if _, err := mutatorOf(object); err == nil {
				objects = append(objects, object)
			}
		}
		caller, engine := serve(t, objects), engineOf(t, objects, nil)
		for range 20 {
			request := creationOf(documentsOf(t, string(marshalled(t, d.pod())))[0].Unstructured)
			request.Namespace = "shop"
			answer := caller.review("mutation", request, namespace)
			want, err := engineObject(t, engine, request)
			switch {
			case err != nil && (answer.Allowed || answer.Status.Code != 500):
				t.Errorf("seed %d: got %+v, expected %v", seed, answer, err)
			case err == nil && (!answer.Allowed || !same(t, caller.after(request, answer), want)):
				t.Errorf("seed %d: got %+v, expected %v", seed, answer, want)
			}
		}
	}
}

func marshalled(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// While the documents change, each call is answered by one state of them: all fields that a state assigns have its value.
func TestCallsWhileTheDocumentsChange(t *testing.T) {
	documents := func(value string) []document {
		return documentsOf(t, assign("host", "spec.hostname", value)+assign("class", "spec.priorityClassName", value)+
			mutator("v1", "ModifySet", "add", onPods+"location: spec.tolerations\nparameters: {values: {fromList: [{key: "+value+"}]}}"))
	}
	server := worker.NewServer()
	served := newEngine(server, logTo(io.Discard))
	if err := served.load(documents("a")); err != nil {
		t.Fatal(err)
	}
	caller := &caller{t, started(t, server)}
	request := creation(t, webPod)
	done := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				spec := caller.after(request, caller.review("mutation", request, ""))["spec"].(map[string]any)
				value := spec["hostname"]
				want := []any{map[string]any{"key": value}}
				if value != spec["priorityClassName"] || !same(t, spec["tolerations"], want) {
					t.Errorf("got %v", spec)
				}
			}
		})
	}
	for round := range 60 {
		if err := served.reload(documents([]string{"a", "b"}[round%2])); err != nil {
			t.Error(err)
		}
	}
	close(done)
	callers.Wait()
}
