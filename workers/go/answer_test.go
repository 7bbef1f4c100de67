package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "admission-gateway.io/worker/internal/workerpb"
)

func policyOf(function PolicyFunc) *policy {
	return &policy{name: "tested", function: function, mutating: true, log: log.New(io.Discard, "", 0)}
}

func resultOf(function PolicyFunc) outcome {
	return policyOf(function).run(context.Background(), &Review{payload: &payload{requestJSON: []byte(podRequest)}, mutating: true})
}

// worse is an error that cannot be looked into.
type worse struct{ error }

func (*worse) Unwrap() error { panic("worse") }

func TestFailuresAreErrorsAndNeverAllow(t *testing.T) {
	for want, function := range map[string]PolicyFunc{
		"boom": func(context.Context, *Review) error { return errors.New("boom") },
		"bang": func(context.Context, *Review) error { panic("bang") },
		"runtime error: index out of range [1] with length 0": func(_ context.Context, review *Review) error {
			var none []int
			_ = none[len(review.Warnings())+1]
			return nil
		},
		"a panic with a *worker.worse that panics itself": func(context.Context, *Review) error { panic(&worse{}) },
		"a?b": func(context.Context, *Review) error { return errors.New("a\xffb") },
		"the object cannot be written as JSON: json: unsupported type: func()": func(_ context.Context, review *Review) error {
			review.Object()["f"] = func() {}
			return nil
		},
		(&runtime.PanicNilError{}).Error(): func(context.Context, *Review) error { panic(nil) },
	} {
		result := resultOf(function)
		if result.err == nil || codes.Code(result.err.Code) != codes.Internal || result.err.Message != want {
			t.Errorf("got %v, expected %q", result, want)
		}
	}
}

func TestADenialIsHonouredWhateverIsAroundIt(t *testing.T) {
	for name, function := range map[string]PolicyFunc{
		"wrapped": func(context.Context, *Review) error { return fmt.Errorf("outer: %w", Deny("no")) },
		"joined":  func(context.Context, *Review) error { return errors.Join(errors.New("other"), Deny("no")) },
		"panic":   func(context.Context, *Review) error { panic(Deny("no")) },
		"changed": func(_ context.Context, review *Review) error {
			review.Object()["f"] = func() {}
			return Deny("no")
		},
	} {
		result := resultOf(function)
		if result.response == nil || result.response.Allowed || result.response.Status.Message != "no" || len(result.response.Patch) > 0 {
			t.Errorf("%s: %v", name, result)
		}
	}
	for code, sent := range map[int]int32{0: 400, 399: 400, 400: 400, 599: 599, 600: 400, -1: 400, 1 << 40: 400} {
		result := resultOf(func(context.Context, *Review) error { return Deny("n\xffo", WithCode(code)) })
		if result.response.Status.Code != sent || result.response.Status.Message != "n?o" {
			t.Errorf("%d is sent as %v", code, result)
		}
	}
}

func TestADenialSaysWhatItIsAboutAndWhenToTryAgain(t *testing.T) {
	result := resultOf(func(context.Context, *Review) error {
		return Deny(
			"no", WithRetryAfterSeconds(30), WithName("web\xff"), WithKind("apps", "Deployment"), WithUID("u-2"),
		)
	})
	want := &pb.Status{
		Code: 403, Message: "no", RetryAfterSeconds: 30, Name: "web?", Group: "apps", Kind: "Deployment", Uid: "u-2",
	}
	if !proto.Equal(result.response.Status, want) {
		t.Errorf("got %v, expected %v", result.response.Status, want)
	}
	result = resultOf(func(context.Context, *Review) error { return Deny("no", WithRetryAfterSeconds(-1)) })
	if seconds := result.response.Status.RetryAfterSeconds; seconds != 0 {
		t.Errorf("-1 is sent as %d", seconds)
	}
}

func TestWarningsAndAnnotationsAreSent(t *testing.T) {
	for _, answer := range []error{nil, Deny("no")} {
		result := resultOf(func(_ context.Context, review *Review) error {
			review.Warn("careful\xff")
			review.Annotate("key", "first")
			review.Annotate("key", "second")
			return answer
		})
		response := result.response
		if response.Allowed != (answer == nil) || fmt.Sprint(response.Warnings, response.AuditAnnotations) != "[careful?] map[key:second]" {
			t.Errorf("got %v", response)
		}
	}
	if result := resultOf(func(context.Context, *Review) error { return nil }); result != allowed {
		t.Errorf("an allow is %v", result)
	}
}

func TestWhatIsTooLarge(t *testing.T) {
	large := strings.Repeat("é", maxMessageBytes/2)
	result := resultOf(func(_ context.Context, review *Review) error {
		review.Object()["large"] = large
		return nil
	})
	patch := len(`[{"op":"add","path":"/large","value":""}]`) + len(large)
	around := 2 + 1 + 4 // allowed, and the tag and length of the patch
	want := fmt.Sprintf("the answer has %d bytes (%d of them patch), more than 8388480", patch+around, patch)
	if result.err == nil || codes.Code(result.err.Code) != codes.ResourceExhausted || result.err.Message != want {
		t.Errorf("got %.200v, expected %s", result.err, want)
	}
	result = resultOf(func(_ context.Context, review *Review) error {
		review.Warn("w")
		return Deny(large, WithCode(409), WithField("f"), WithRetryAfterSeconds(30))
	})
	status := result.response.GetStatus()
	if status.GetCode() != 409 || status.GetRetryAfterSeconds() != 30 || status.GetMessage() != large[:2*4096] || len(status.Causes) > 0 || proto.Size(result.response) > 10_000 {
		t.Errorf("the denial became %.200v", result)
	}
	result = resultOf(func(context.Context, *Review) error { return errors.New("x" + large) })
	if got := result.err.Message; len(got) > maxErrorBytes || got != "x"+large[:1996]+"..." {
		t.Errorf("the error has %d bytes and ends in %q", len(got), got[len(got)-10:])
	}
}

func TestAPolicyThatWasStoppedHasNotFailed(t *testing.T) {
	late, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	gone, stop := context.WithCancel(context.Background())
	stop()
	for ctx, want := range map[context.Context]codes.Code{late: codes.DeadlineExceeded, gone: codes.Canceled} {
		var text bytes.Buffer
		stopped := policyOf(func(ctx context.Context, _ *Review) error { return fmt.Errorf("asking: %w", ctx.Err()) })
		stopped.log = log.New(&text, "", 0)
		result := stopped.run(ctx, &Review{})
		if codes.Code(result.err.GetCode()) != want || text.Len() > 0 {
			t.Errorf("got %v, logged %q", result, text.String())
		}
	}
}
