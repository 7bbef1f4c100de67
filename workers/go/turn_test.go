package worker

import (
	"context"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

func TestAPolicyThatEndsItsGoroutineHasFailed(t *testing.T) {
	probe := newProbe()
	probe.Policy("exit", "Exits.", func(context.Context, *Review) error {
		runtime.Goexit()
		return nil
	})
	stream := open(t, probe.serve(t))
	for id := range uint64(8) { // more than it takes to be run apart
		stream.ask(asked(2*id, "exit"), asked(2*id+1, "allow"))
		found := stream.verdicts(2)
		if codes.Code(found[2*id].GetError().GetCode()) != codes.Internal || !found[2*id+1].GetResponse().GetAllowed() {
			t.Fatalf("got %v", found)
		}
	}
}

func TestAPolicyThatIsSlowAgainAndAgainIsRunApart(t *testing.T) {
	slow := policyOf(nil)
	small, large := &Review{}, &Review{payload: string(make([]byte, largeReview+1))}
	for range 10 {
		slow.took(time.Second, large)
	}
	for range 200 {
		slow.took(2*quickRun, small)
		for range slowPoints {
			slow.took(quickRun, small)
		}
	}
	if slow.apart() {
		t.Error("one slow run in seventeen is enough")
	}
	for range 4 {
		slow.took(2*quickRun, small)
	}
	if !slow.apart() {
		t.Error("four slow runs in a row are not enough")
	}
	for range mostPoints {
		slow.took(quickRun, small)
	}
	if slow.apart() {
		t.Error("many quick runs make no difference")
	}
}
