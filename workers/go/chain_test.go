package worker

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// after makes a call one that is evaluated after another one.
func after(earlier uint64, call *pb.Call) *pb.Call {
	call.After = earlier
	return call
}

// newCounter returns a probe with policies that count in a label: "add" adds one, "say" and "read" deny with the number, and
// "set" changes what it gets although it is not mutating, and denies with the number too.
func newCounter() *probe {
	p := newProbe()
	labels := func(review *Review) map[string]any {
		return review.Object()["metadata"].(map[string]any)
	}
	p.MutatingPolicy("add", "", func(_ context.Context, review *Review) error {
		text, _ := labels(review)["count"].(string)
		labels(review)["count"] = text + "1"
		return nil
	})
	p.Policy("say", "", func(_ context.Context, review *Review) error { return Deny(fmt.Sprint(labels(review)["count"])) })
	p.Policy("read", "", func(_ context.Context, review *Review) error {
		return Deny(fmt.Sprint(review.Read("object", "metadata", "count").Any()))
	})
	p.Policy("set", "", func(_ context.Context, review *Review) error {
		found := fmt.Sprint(labels(review)["count"])
		labels(review)["count"] = "set"
		return Deny(found)
	})
	return p
}

func expectSaid(t *testing.T, found map[uint64]*pb.Verdict, want map[uint64]string) {
	t.Helper()
	for id, text := range want {
		if got := found[id].GetResponse().GetStatus().GetMessage(); got != text {
			t.Errorf("%d: got %v, expected %s", id, found[id], text)
		}
	}
}

func TestAChainPassesOnTheObject(t *testing.T) {
	stream := open(t, newCounter().serve(t))
	stream.ask(
		asked(1, "add"), after(1, asked(2, "add")), after(2, asked(3, "say")), after(1, asked(4, "say")), asked(5, "say"),
		after(2, asked(6, "set")), after(6, asked(7, "say")), after(2, asked(8, "say")), asked(9, "set"), asked(10, "say"),
		after(1, asked(11, "add")), after(11, asked(12, "say")), after(5, asked(13, "say")), after(2, asked(14, "panic")),
		after(14, asked(15, "say")), asked(16, "read"), after(1, asked(17, "read")), after(17, asked(18, "read")),
		after(6, asked(19, "read")), after(11, asked(20, "read")),
	)
	found := stream.verdicts(20)
	for id, verdict := range found {
		if verdict.Chained == (id == 1 || id == 5 || id == 9 || id == 10 || id == 16) {
			t.Errorf("chained: %v", verdict)
		}
	}
	expectSaid(t, found, map[uint64]string{
		3: "11", 4: "1", 5: "<nil>", 6: "11", 7: "11", 8: "11", 9: "<nil>", 10: "<nil>", 12: "11", 13: "<nil>", 15: "11",
		16: "<nil>", 17: "1", 18: "1", 19: "11", 20: "11",
	})
}

func TestAChainGoesOnWhereAPolicyTakesItsTime(t *testing.T) {
	probe := newCounter()
	stream := open(t, probe.serve(t))
	stream.ask(
		asked(1, "add"), after(1, asked(2, "deaf")), after(2, asked(3, "add")), after(3, asked(4, "say")),
		after(1, asked(5, "set")), after(1, asked(6, "say")), asked(7, "say"),
	)
	expectSaid(t, stream.verdicts(4), map[uint64]string{5: "1", 6: "1", 7: "<nil>"})
	probe.gate <- struct{}{}
	expectSaid(t, stream.verdicts(3), map[uint64]string{4: "11"})
}

func TestAChainGoesOnAfterADeadline(t *testing.T) {
	probe := newCounter()
	stream := open(t, probe.serve(t))
	late := after(1, asked(2, "deaf"))
	late.TimeoutMillis = 50
	stream.ask(asked(1, "add"), late, after(2, asked(3, "add")), after(3, asked(4, "say")))
	found := stream.verdicts(4)
	expectSaid(t, found, map[uint64]string{4: "11"})
	if codes.Code(found[2].GetError().GetCode()) != codes.DeadlineExceeded {
		t.Errorf("got %v", found[2])
	}
	probe.gate <- struct{}{}
	stream.CloseSend()
	if err, count := stream.end(); err != nil || count != 0 {
		t.Error(err, count)
	}
}

func TestCancellingACallCancelsThoseAfterIt(t *testing.T) {
	probe := newCounter()
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "wait"), after(1, asked(2, "say")), after(2, asked(3, "say")))
	wanted(t, probe.started)
	stream.send(&pb.ReviewBatch{Cancelled: []uint64{1}})
	wanted(t, probe.stopped)
	stream.CloseSend()
	if err, count := stream.end(); err != nil || count != 0 {
		t.Error(err, count)
	}
}

func TestACallAfterAnUnknownCallIsRejected(t *testing.T) {
	stream := open(t, newCounter().serve(t))
	other := after(1, asked(4, "say"))
	other.Payload = 1
	payload := &pb.Payload{AdmissionRequest: []byte(podRequest)}
	stream.send(&pb.ReviewBatch{Payloads: []*pb.Payload{payload, payload}, Calls: []*pb.Call{
		asked(1, "say"), after(2, asked(2, "say")), after(9, asked(3, "say")), other, after(6, asked(5, "say")), asked(6, "say"),
	}})
	for id, verdict := range stream.verdicts(6) {
		isRejected := codes.Code(verdict.GetError().GetCode()) == codes.InvalidArgument
		if isRejected == (id == 1 || id == 6) {
			t.Errorf("got %v", verdict)
		}
	}
}

// A policy that has once taken its time has goroutines of its own until it is quick again.
func TestASlowPolicyBecomesQuickAgain(t *testing.T) {
	probe := newCounter()
	changing := false
	probe.Policy("slow", "", func(_ context.Context, review *Review) error {
		if review.Name() == "web" && !changing {
			changing = true
			time.Sleep(20 * watchInterval)
		}
		return nil
	})
	stream := open(t, probe.serve(t))
	slow := probe.set.policies[len(probe.set.policies)-1]
	stream.ask(asked(1, "slow"), asked(2, "say"))
	stream.verdicts(2)
	if !slow.isSlow.Load() {
		t.Error("the policy is not slow")
	}
	for id := uint64(3); slow.isSlow.Load(); id += 2 {
		stream.ask(asked(id, "slow"), asked(id+1, "say"))
		stream.verdicts(2)
	}
}

func TestOthersGoOnWhereAPolicyEndsItsGoroutine(t *testing.T) {
	probe := newCounter()
	probe.Policy("exit", "", func(context.Context, *Review) error {
		runtime.Goexit()
		return nil
	})
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "add"), after(1, asked(2, "exit")), after(2, asked(3, "say")), asked(4, "exit"), asked(5, "say"))
	expectSaid(t, stream.verdicts(5), map[uint64]string{3: "1", 5: "<nil>"})
	stream.ask(asked(6, "say"))
	stream.verdicts(1)
}

func TestTheContextOfACallEndsWithIt(t *testing.T) {
	probe := newProbe()
	kept := make(chan context.Context, 2)
	probe.Policy("keep", "", func(ctx context.Context, review *Review) error {
		if _, ok := ctx.Deadline(); !ok || ctx.Err() != nil {
			t.Error("the context has no deadline, or has ended")
		}
		kept <- ctx
		return nil
	})
	stream := open(t, probe.serve(t))
	stream.ask(asked(1, "keep"))
	stream.verdicts(1)
	ctx := wanted(t, kept)
	wanted(t, ctx.Done())
	if ctx.Err() != context.Canceled {
		t.Error(ctx.Err())
	}
}
