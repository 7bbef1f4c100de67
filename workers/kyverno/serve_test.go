package main

import (
	"context"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"admission-gateway.io/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

const service = "admissiongateway.worker.v1."

// caller calls a worker that follows a folder.
type caller struct {
	testing.TB
	program    *program
	connection *grpc.ClientConn
}

func follow(t testing.TB, folder string) *caller {
	t.Helper()
	server := worker.NewServer()
	server.LogTo(log.New(io.Discard, "", 0))
	served := newProgram(server, log.New(io.Discard, "", 0))
	served.source.Folders = []string{folder}
	if err := served.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	return &caller{t, served, connection}
}

// review calls a policy, and returns the answer as JSON.
func (c *caller) review(ctx context.Context, policy, request string) (string, error) {
	c.Helper()
	message := func(name string) *dynamicpb.Message {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + name))
		if err != nil {
			c.Fatal(err)
		}
		return dynamicpb.NewMessage(found.(protoreflect.MessageDescriptor))
	}
	asked, answer := message("ReviewRequest"), message("ReviewResponse")
	fields := asked.Descriptor().Fields()
	asked.Set(fields.ByName("policy"), protoreflect.ValueOfString(policy))
	asked.Set(fields.ByName("admission_request"), protoreflect.ValueOfBytes([]byte(request)))
	if err := c.connection.Invoke(ctx, "/"+service+"PolicyWorker/Review", asked, answer); err != nil {
		return "", err
	}
	return protojson.MarshalOptions{}.Format(answer), nil
}

// until calls check until it is true: other tests may slow this one down.
func until(t testing.TB, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func write(t testing.TB, folder, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, "policies.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An evaluation that does not end in time costs its call, and keeps a turn until it ends. Others are answered.
func TestAnEvaluationThatGoesOnForLong(t *testing.T) {
	folder := t.TempDir()
	// The time to match grows with the length of the text to the power of the number of wildcards.
	slow := "name: slow\nvalidate: {message: refused, pattern: {metadata: {labels: {team: \"*a*a*a*a*a*b\"}}}}"
	write(t, folder, rules("slow", enforce, slow)+"---\n"+rules("labels", enforce, needsTeam))
	caller := follow(t, folder)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	long := pod(`, "labels": {"team": "`+strings.Repeat("a", 60)+`"}`, running)
	if answer, err := caller.review(ctx, "slow/slow", long); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %s, %v", answer, err)
	}
	answer, err := caller.review(t.Context(), "labels/team", pod("", running))
	if err != nil || !strings.Contains(answer, "needs a team") {
		t.Errorf("got %s, %v", answer, err)
	}
	until(t, "the evaluation keeps its turn", func() bool { return len(caller.program.turns) == 0 })
}

func TestChangesOfTheFolderAreServed(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, rules("labels", enforce, needsTeam))
	caller := follow(t, folder)
	says := func(policy, want string) func() bool {
		return func() bool {
			answer, err := caller.review(t.Context(), policy, pod("", running))
			return err == nil && strings.Contains(answer, want)
		}
	}
	if !says("labels/team", "needs a team")() || !says("validation", "labels:")() {
		t.Error("the first policy is not served")
	}
	write(t, folder, rules("others", enforce, strings.ReplaceAll(needsTeam, "needs a team", "needs another")))
	until(t, "the change is not served", says("others/team", "needs another"))
	if _, err := caller.review(t.Context(), "labels/team", pod("", running)); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
}
