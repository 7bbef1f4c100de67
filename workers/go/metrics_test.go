package worker

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// measured starts the probe with metrics, and returns a client and the URL of the metrics.
func measured(t *testing.T, p *probe) (pb.PolicyWorkerClient, string) {
	t.Helper()
	addresses, err := p.Start(Options{Listen: []string{"127.0.0.1:0"}, MetricsListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Stop(ctx)
	})
	return pb.NewPolicyWorkerClient(dial(t, addresses[0], plaintext)), "http://" + p.MetricsAddress() + metricsPath
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), textFormat) {
		t.Fatal(answer.Status, answer.Header, err)
	}
	return string(text)
}

// expectLines waits until the metrics have these lines.
func expectLines(t *testing.T, url string, lines ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, missing := scrape(t, url), ""
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is missing in\n%s", missing, text)
		}
	}
}

func count(policy, outcome string, count int) string {
	return fmt.Sprintf(`admission_gateway_worker_policy_reviews_total{outcome=%q,policy=%q} %d`, outcome, policy, count)
}

func inFlight(policy string, count int) string {
	return fmt.Sprintf(`admission_gateway_worker_policy_in_flight{policy=%q} %d`, policy, count)
}

func TestMetricsCountReviewsByOutcome(t *testing.T) {
	p := newProbe()
	client, url := measured(t, p)
	expectLines(t, url, count("allow", "allowed", 0), inFlight("wait", 0))
	stream := open(t, client)
	stream.ask(asked(1, "allow"), asked(2, "deny"), asked(3, "panic"), asked(4, "allow"), asked(5, "nobody"))
	stream.verdicts(5)
	for _, policy := range []string{"allow", "deny", "panic"} {
		_, _ = review(soon(t), client, policy, "{}")
	}
	expectLines(t, url, count("allow", "allowed", 3), count("deny", "denied", 2), count("panic", "error", 2), count("allow", "error", 0),
		inFlight("allow", 0), `admission_gateway_worker_policy_duration_seconds_bucket{policy="allow",le="+Inf"} 3`,
		`admission_gateway_worker_policy_duration_seconds_count{policy="deny"} 2`, "# TYPE process_start_time_seconds gauge")
	if text := scrape(t, url); strings.Contains(text, "nobody") || !strings.Contains(text, `,sdk="go",version="`) {
		t.Error(text)
	}
}

func TestMetricsCountCallsInFlight(t *testing.T) {
	p := newProbe()
	client, url := measured(t, p)
	stream := open(t, client)
	stream.ask(asked(1, "wait"), asked(2, "deaf"))
	ctx, cancel := context.WithCancel(soon(t))
	go func() { _, _ = review(ctx, client, "wait", "{}") }()
	expectLines(t, url, inFlight("wait", 2), inFlight("deaf", 1))
	stream.send(&pb.ReviewBatch{Cancelled: []uint64{1}})
	cancel()
	expectLines(t, url, inFlight("wait", 0), count("wait", "error", 0), inFlight("deaf", 1))
	close(p.gate)
	expectLines(t, url, inFlight("deaf", 0), count("deaf", "allowed", 1))
}

func TestACallThatExceedsItsDeadlineIsAnError(t *testing.T) {
	p := newProbe()
	client, url := measured(t, p)
	defer close(p.gate)
	stream := open(t, client)
	late := asked(1, "deaf")
	late.TimeoutMillis = 1
	stream.ask(late)
	stream.verdicts(1)
	expectLines(t, url, inFlight("deaf", 0), count("deaf", "error", 1), count("deaf", "allowed", 0))
}

func TestOnlyTheMetricsAreServed(t *testing.T) {
	_, url := measured(t, newProbe())
	for path, want := range map[string]int{"/": 404, "/metrics/x": 404, "/../metrics": 404} {
		answer, err := http.Get(strings.TrimSuffix(url, metricsPath) + path)
		if err != nil || answer.StatusCode != want {
			t.Error(path, answer.Status, err)
		}
	}
	if answer, err := http.Post(url, "text/plain", strings.NewReader("x")); err != nil || answer.StatusCode != 405 {
		t.Error(answer.Status, err)
	}
}

func TestMetricsNeedAFreePort(t *testing.T) {
	taken := newProbe()
	_, url := measured(t, taken)
	at := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), metricsPath)
	for listen, want := range map[string]string{
		at: "--metrics-listen: " + at + ": Address already in use", "unix:/x": "--metrics-listen: HOST:PORT is expected",
		"x": `--metrics-listen: "x" is not an address: HOST:PORT, [IPV6]:PORT or unix:PATH is expected`,
	} {
		_, err := newProbe().Start(Options{Listen: []string{"127.0.0.1:0"}, MetricsListen: listen})
		if err == nil || err.Error() != want {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}

func TestPoliciesGetTheTraceparent(t *testing.T) {
	p := newProbe()
	p.Policy("trace", "Denies with the trace context.", func(_ context.Context, review *Review) error {
		return Deny("[" + review.Traceparent() + "]")
	})
	client := p.serve(t)
	stream := open(t, client)
	for id, sent := range []string{traceparent, "garbage", ""} {
		want := "[]"
		if sent == traceparent {
			want = "[" + traceparent + "]"
		}
		answer, err := review(metadata.AppendToOutgoingContext(soon(t), "traceparent", sent), client, "trace", "{}")
		if err != nil || answer.Status.Message != want {
			t.Error(answer, err)
		}
		call := asked(uint64(id), "trace")
		call.Traceparent = sent
		stream.ask(call)
		if got := stream.verdicts(1)[uint64(id)].GetResponse().GetStatus().GetMessage(); got != want {
			t.Errorf("got %s, expected %s", got, want)
		}
	}
}
