package worker

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// denying fills a set with policies that deny with their name.
func denying(names ...string) func(*Set) {
	return func(set *Set) {
		for _, name := range names {
			set.Policy(name, "Denies.", func(context.Context, *Review) error { return Deny(name) })
		}
	}
}

func names(t *testing.T, client pb.PolicyWorkerClient) string {
	t.Helper()
	listed, err := client.ListPolicies(soon(t), &pb.ListPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, each := range listed.Policies {
		found = append(found, each.Name)
	}
	return strings.Join(found, " ")
}

func TestPoliciesAreReplacedWhileTheyAreServed(t *testing.T) {
	probe := newProbe()
	client := probe.serve(t)
	stream := open(t, client)
	stream.ask(asked(1, "wait"))
	<-probe.started
	if err := probe.Replace(denying("first", "second")); err != nil {
		t.Fatal(err)
	}
	if found := names(t, client); found != "first second" {
		t.Error(found)
	}
	stream.ask(asked(2, "wait"), asked(3, "second"))
	found := stream.verdicts(2)
	if found[2].GetError().GetCode() != int32(codes.NotFound) || found[3].GetResponse().GetStatus().GetMessage() != "second" {
		t.Error(found)
	}
	probe.gate <- struct{}{}
	if ended := stream.verdicts(1); !ended[1].GetResponse().GetAllowed() {
		t.Error("the call in flight ended with", ended)
	}
	if answer, err := review(soon(t), client, "first", "{}"); err != nil || answer.Allowed {
		t.Error(answer, err)
	}
}

func TestAMistakeReplacesNothing(t *testing.T) {
	probe := newProbe()
	client := probe.serve(t)
	before := names(t, client)
	err := probe.Replace(denying("twice", "other", "twice"))
	if err == nil || !strings.Contains(err.Error(), `policy "twice" is already registered, at set_test.go:`) {
		t.Error(err)
	}
	if found := names(t, client); found != before {
		t.Error(found)
	}
}

func TestAnEmptySetIsServed(t *testing.T) {
	server := NewServer()
	if err := server.Replace(denying()); err != nil {
		t.Fatal(err)
	}
	addresses, err := server.Start(Options{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop(soon(t))
	client := pb.NewPolicyWorkerClient(dial(t, addresses[0], plaintext))
	_, err = review(soon(t), client, "none", "{}")
	if want := `policy "none" is not served here; served are: none`; status.Code(err) != codes.NotFound || status.Convert(err).Message() != want {
		t.Error(err)
	}
}

func TestTheMetricsFollowThePolicies(t *testing.T) {
	server := NewServer()
	server.Policy("first", "Denies.", func(context.Context, *Review) error { return Deny("no") })
	server.Policy("second", "Denies.", func(context.Context, *Review) error { return Deny("no") })
	addresses, err := server.Start(Options{Listen: []string{"127.0.0.1:0"}, MetricsListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop(soon(t))
	client := pb.NewPolicyWorkerClient(dial(t, addresses[0], plaintext))
	if _, err := review(soon(t), client, "second", "{}"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := server.Replace(denying("second", "third")); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := http.Get("http://" + server.MetricsAddress() + metricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	const denied = `admission_gateway_worker_policy_reviews_total{outcome="denied",policy="`
	for _, want := range []string{denied + "second\"} 1\n", denied + "third\"} 0\n"} {
		if !strings.Contains(string(text), want) {
			t.Error("not found:", want)
		}
	}
	if strings.Contains(string(text), `"first"`) {
		t.Error("a policy that is no longer served has metrics")
	}
}

// greeting is a worker with a flag of its own, which says how its preparation ends.
func greeting() *Server {
	server := NewServer()
	var text string
	server.Flags("  --greeting TEXT     what to say\n", func(flags *flag.FlagSet) { flags.StringVar(&text, "greeting", "", "") })
	server.BeforeServing(func(context.Context) error {
		if text == "" {
			return errors.New("first problem\nsecond problem")
		}
		return server.Replace(denying(strings.Split(text, ",")...))
	})
	return server
}

func TestAProgramHasFlagsOfItsOwn(t *testing.T) {
	running := start(t, "greeting", "--listen", "127.0.0.1:0", "--greeting", "1,2,3,4,5,6,7")
	if found := names(t, running.ready()); found != "1 2 3 4 5 6 7" {
		t.Error(found)
	}
	if code, text := start(t, "greeting").status(); code != 1 || text != "worker: first problem\nworker: second problem\n" {
		t.Errorf("status %d, %q", code, text)
	}
	if code, text := start(t, "greeting", "--greetings", "x").status(); code != 2 || !strings.Contains(text, "-greetings") {
		t.Errorf("status %d, %q", code, text)
	}
	help := start(t, "greeting", "--help")
	if code, _ := help.status(); code != 0 {
		t.Errorf("status %d", code)
	}
}

func TestTheJSONOfAReviewHasTheChangesBeforeIt(t *testing.T) {
	server := newProbe()
	server.MutatingPolicy("mark", "Sets a mark.", func(_ context.Context, review *Review) error {
		review.Object()["mark"] = "x"
		return nil
	})
	var seen []string
	look := func(_ context.Context, review *Review) error {
		text, err := review.RequestJSON()
		made := review.Shared("count", func() any { return len(seen) })
		seen = append(seen, string(text)+string(review.NamespaceJSON()))
		if made != review.Shared("count", func() any { return -1 }) {
			return errors.New("made twice")
		}
		return err
	}
	server.MutatingPolicy("read", "Reads.", look)
	server.MutatingPolicy("read-again", "Reads.", look)
	stream := open(t, server.serve(t))
	stream.send(&pb.ReviewBatch{
		Payloads: []*pb.Payload{{AdmissionRequest: []byte(`{"object":{"a":1.50}}`), NamespaceObject: []byte(`{"n":1}`)}},
		Calls: []*pb.Call{
			{Id: 1, Policy: "read", TimeoutMillis: 60_000},
			{Id: 2, Policy: "mark", TimeoutMillis: 60_000},
			{Id: 3, Policy: "read-again", TimeoutMillis: 60_000, After: 2},
		},
	})
	for id, verdict := range stream.verdicts(3) {
		if !verdict.GetResponse().GetAllowed() {
			t.Error(id, verdict)
		}
	}
	want := []string{`{"object":{"a":1.50}}{"n":1}`, `{"object":{"a":1.50,"mark":"x"}}{"n":1}`}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Error(seen)
	}
}
