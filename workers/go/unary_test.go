package worker

import (
	"context"
	"io"
	"log"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

func review(ctx context.Context, client pb.PolicyWorkerClient, policy, payload string) (*pb.ReviewResponse, error) {
	return client.Review(ctx, &pb.ReviewRequest{Policy: policy, AdmissionRequest: []byte(payload)})
}

func TestReviewAnswers(t *testing.T) {
	client := newProbe().serve(t)
	if answer, err := review(soon(t), client, "allow", "not JSON, which nobody looks at"); err != nil || !answer.Allowed {
		t.Error(answer, err)
	}
	if answer, err := review(soon(t), client, "deny", "{}"); err != nil || answer.Allowed || answer.Status.Code != 403 {
		t.Error(answer, err)
	}
	for policy, want := range map[string]string{
		"panic":  "bang",
		"nobody": unserved,
		"look":   "admission_request is to be a JSON object, found array",
	} {
		if _, err := review(soon(t), client, policy, "[]"); status.Convert(err).Message() != want {
			t.Errorf("%s: got %v, expected %s", policy, err, want)
		}
	}
}

func TestReviewEndsAtItsDeadlineAndWhenItIsCancelled(t *testing.T) {
	probe := newProbe()
	client := probe.serve(t)
	// Again if the machine is so slow that the deadline passes before the policy begins.
	for timeout := 50 * time.Millisecond; len(probe.started) == 0; timeout *= 2 {
		ctx, cancel := context.WithTimeout(soon(t), timeout)
		defer cancel()
		if _, err := review(ctx, client, "wait", "{}"); status.Code(err) != codes.DeadlineExceeded {
			t.Error(err)
		}
	}
	wanted(t, probe.stopped)
	<-probe.started
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		<-probe.started
		cancel()
	}()
	if _, err := review(ctx, client, "wait", "{}"); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if err := wanted(t, probe.stopped); err != context.Canceled {
		t.Errorf("the policy was told %v", err)
	}
}

func TestReviewTakes4096CallsAndNoMore(t *testing.T) {
	set := newSet(log.New(io.Discard, "", 0))
	set.Policy("tested", "", func(context.Context, *Review) error { return nil })
	served := newService(set)
	for range maxUnaryInFlight - 1 {
		served.enter(nil)
	}
	request := &pb.ReviewRequest{Policy: "tested"}
	if answer, err := served.Review(soon(t), request); err != nil || !answer.Allowed {
		t.Error(answer, err)
	}
	served.enter(nil)
	_, err := served.Review(soon(t), request)
	if status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "4096 calls are in flight" {
		t.Error(err)
	}
}

func TestReviewTakesSevenMebibytesAndRefusesNine(t *testing.T) {
	client := newProbe().serve(t)
	payload := `{"object":{"x":"` + strings.Repeat("y", 7<<20) + `"}}`
	if answer, err := review(soon(t), client, "look", payload); err != nil || !answer.Allowed {
		t.Error(answer, err)
	}
	payload += strings.Repeat(" ", 2<<20)
	if _, err := review(soon(t), client, "look", payload); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

func TestListPoliciesHasThemInOrder(t *testing.T) {
	server := NewServer()
	nothing := func(context.Context, *Review) error { return nil }
	server.Policy("z", "Last letter.", nothing, WithVersion("v1"))
	server.MutatingPolicy("a", "First letter.", nothing)
	client := (&probe{Server: server, gate: make(chan struct{})}).serve(t)
	answer, err := client.ListPolicies(soon(t), &pb.ListPoliciesRequest{})
	if err != nil || len(answer.Policies) != 2 {
		t.Fatal(answer, err)
	}
	first, second := answer.Policies[0], answer.Policies[1]
	if first.Name != "z" || first.Description != "Last letter." || first.Version != "v1" || first.Mutating ||
		second.Name != "a" || !second.Mutating {
		t.Error(answer)
	}
}

func TestMistakesOfRegisteringAreToldAtTheStart(t *testing.T) {
	nothing := func(context.Context, *Review) error { return nil }
	for want, register := range map[string]func(*Server){
		"no policy is registered": func(*Server) {},
		`policy "a" is already registered, at unary_test.go:`: func(server *Server) {
			server.Policy("a", "", nothing)
			server.MutatingPolicy("a", "", nothing)
		},
		`the name of a policy is some printable text, found " "`:   func(server *Server) { server.Policy(" ", "", nothing) },
		`the name of a policy is some printable text, found "a\n"`: func(server *Server) { server.Policy("a\n", "", nothing) },
		`policy "a" has no function`:                               func(server *Server) { server.Policy("a", "", nil) },
	} {
		server := NewServer()
		register(server)
		_, err := server.Start(Options{Listen: []string{"127.0.0.1:0"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}
