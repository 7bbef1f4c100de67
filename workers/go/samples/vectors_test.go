package samples_test

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"admission-gateway.io/worker"
	"admission-gateway.io/worker/internal/tree"
	pb "admission-gateway.io/worker/internal/workerpb"
	"admission-gateway.io/worker/samples"
)

// vector is one of the vectors that the samples of all languages share.
type vector struct {
	Name            string
	Policy          string
	Request         json.RawMessage
	NamespaceObject json.RawMessage
	Parameters      json.RawMessage
	Outcome         outcome
}

type outcome struct {
	Response *response
	Error    *failure
}

type failure struct {
	Code    int32
	Message string
}

type response struct {
	Allowed          bool
	Status           state
	Patch            json.RawMessage
	Warnings         []string
	AuditAnnotations map[string]string
}

type state struct {
	Code            int32
	Reason, Message string
	Causes          []cause

	RetryAfterSeconds      int32
	Name, Group, Kind, UID string
}

type cause struct{ Reason, Message, Field string }

func vectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("../../conformance/admission_gateway_conformance/samples.json")
	if err != nil {
		t.Fatal(err)
	}
	var found []vector
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("there are no vectors")
	}
	return found
}

func serve(t *testing.T) pb.PolicyWorkerClient {
	t.Helper()
	server := worker.NewServer()
	samples.Register(server)
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
	return pb.NewPolicyWorkerClient(connection)
}

func TestVectorsByReview(t *testing.T) {
	client := serve(t)
	for _, vector := range vectors(t) {
		t.Run(vector.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			answer, err := client.Review(ctx, &pb.ReviewRequest{
				Policy: vector.Policy, AdmissionRequest: vector.Request, NamespaceObject: vector.NamespaceObject,
				Parameters: vector.Parameters,
			})
			if err != nil {
				got := status.Convert(err)
				compare(t, vector, nil, &pb.Error{Code: int32(got.Code()), Message: got.Message()})
			} else {
				compare(t, vector, answer, nil)
			}
		})
	}
}

func TestVectorsByReviewStream(t *testing.T) {
	client := serve(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := client.ReviewStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	all := vectors(t)
	batch := &pb.ReviewBatch{}
	for index, vector := range all {
		parameters := uint32(0)
		batch.Payloads = append(batch.Payloads, &pb.Payload{
			AdmissionRequest: vector.Request, NamespaceObject: vector.NamespaceObject,
		})
		if vector.Parameters != nil {
			parameters = uint32(len(batch.Parameters) + 1)
			batch.Parameters = append(batch.Parameters, &pb.Parameters{Id: parameters, Json: vector.Parameters})
		}
		batch.Calls = append(batch.Calls, &pb.Call{
			Id: uint64(index), Payload: uint32(index), Policy: vector.Policy, TimeoutMillis: 10_000,
			Parameters: parameters,
		})
	}
	if err := stream.Send(batch); err != nil {
		t.Fatal(err)
	}
	verdicts := make(map[uint64]*pb.Verdict)
	for len(verdicts) < len(all) {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, verdict := range answer.Verdicts {
			verdicts[verdict.Id] = verdict
		}
	}
	for index, vector := range all {
		t.Run(vector.Name, func(t *testing.T) {
			verdict := verdicts[uint64(index)]
			compare(t, vector, verdict.GetResponse(), verdict.GetError())
		})
	}
}

func compare(t *testing.T, vector vector, answer *pb.ReviewResponse, failed *pb.Error) {
	t.Helper()
	var got outcome
	if failed != nil {
		got.Error = &failure{failed.Code, failed.Message}
	} else {
		got.Response = &response{
			Allowed: answer.Allowed, Warnings: answer.Warnings, AuditAnnotations: answer.AuditAnnotations,
		}
		if answer.Status != nil {
			got.Response.Status = state{
				Code: answer.Status.Code, Reason: answer.Status.Reason, Message: answer.Status.Message,
				Causes: []cause{}, RetryAfterSeconds: answer.Status.RetryAfterSeconds, Name: answer.Status.Name,
				Group: answer.Status.Group, Kind: answer.Status.Kind, UID: answer.Status.Uid,
			}
			for _, found := range answer.Status.Causes {
				got.Response.Status.Causes = append(got.Response.Status.Causes, cause{found.Reason, found.Message, found.Field})
			}
		}
		comparePatch(t, answer.Patch, vector)
	}
	want := vector.Outcome
	if want.Response != nil {
		copied := *want.Response
		copied.Patch, want.Response = nil, &copied
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s, expected %s", asJSON(got), asJSON(want))
	}
}

// comparePatch compares the objects to which the patches lead.
func comparePatch(t *testing.T, patch []byte, vector vector) {
	t.Helper()
	request, err := tree.Parse(vector.Request, nil)
	if err != nil {
		t.Fatal(err)
	}
	object := request.(map[string]any)["object"]
	var wanted []byte
	if vector.Outcome.Response != nil {
		wanted = vector.Outcome.Response.Patch
	}
	got, expected := patched(t, object, patch), patched(t, object, wanted)
	if !tree.Same(got, expected) {
		t.Errorf("the patch %s leads to %s, expected %s", patch, asJSON(got), asJSON(expected))
	}
}

// patched returns the object after the patch; without a patch the object.
func patched(t *testing.T, object any, patch []byte) any {
	t.Helper()
	if len(patch) == 0 {
		return object
	}
	operations, err := tree.Parse(patch, nil)
	if err != nil {
		t.Fatalf("%v in the patch %s", err, patch)
	}
	after, err := tree.Apply(object, operations)
	if err != nil {
		t.Fatalf("the patch %s does not apply: %v", patch, err)
	}
	return after
}

func asJSON(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}
