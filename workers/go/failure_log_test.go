package worker

import (
	"bytes"
	"context"
	"errors"
	"log"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

const (
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	hostile     = "bang\n2026-01-01T00:00:00.000Z ERROR worker: forged \x1b[31m\u2028\"quoted\""
)

// record is the first line of a logged failure.
var record = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR worker: policy failed: `)

// logOf returns what one run of a policy logs.
func logOf(function PolicyFunc, request string, options ...func(*Review)) string {
	var text bytes.Buffer
	failing := policyOf(function)
	failing.log = log.New(&text, "", 0)
	review := &Review{payload: &payload{requestJSON: []byte(request)}}
	for _, option := range options {
		option(review)
	}
	failing.run(context.Background(), review)
	return text.String()
}

func TestAFailureIsOneLineWithItsReview(t *testing.T) {
	got := logOf(func(context.Context, *Review) error { return errors.New(hostile) }, `{"uid": "u-1", "object": {"secret": "s3cret"}}`,
		func(review *Review) { review.traceparent = traceparent })
	want := `policy="tested" uid="u-1" trace_id="0af7651916cd43dd8448eb211c80319c" ` +
		`error="*errors.errorString: bang\n2026-01-01T00:00:00.000Z ERROR worker: forged \x1b[31m\u2028\"quoted\""` + "\n"
	if place := record.FindStringIndex(got); place == nil || got[place[1]:] != want || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %q", got)
	}
}

func TestAStackTraceBeginsNoRecord(t *testing.T) {
	got := logOf(func(context.Context, *Review) error { panic(hostile) }, `{"uid": "u\n1"}`)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if !record.MatchString(lines[0]) || !strings.Contains(lines[0], `uid="u\n1" error="panic: bang\n`) || len(lines) < 5 {
		t.Errorf("logged %q", got)
	}
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, continued) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
			t.Errorf("a line of the stack trace is %q", line)
		}
	}
	if !strings.Contains(got, "failure_log_test.go") {
		t.Errorf("the stack trace is %q", got)
	}
}

func TestALineIsBounded(t *testing.T) {
	large := strings.Repeat("\x00é", 100_000)
	got := logOf(func(context.Context, *Review) error { return errors.New(large) }, `{"uid": "`+strings.Repeat("u", 100_000)+`"}`)
	if len(got) > 10_000 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestAPolicyThatEndsItsGoroutineIsLogged(t *testing.T) {
	done := make(chan string)
	go func() {
		var text bytes.Buffer
		failing := policyOf(nil)
		failing.function = func(context.Context, *Review) error {
			runtime.Goexit()
			return nil
		}
		failing.log = log.New(&text, "", 0)
		defer func() { done <- text.String() }()
		failing.run(context.Background(), &Review{payload: &payload{requestJSON: []byte("{}")}})
	}()
	if got := <-done; !strings.Contains(got, "the policy ended its goroutine") {
		t.Errorf("logged %q", got)
	}
}

func TestFailuresAreLoggedOnceASecond(t *testing.T) {
	var text bytes.Buffer
	failing := policyOf(func(context.Context, *Review) error { panic("bang") })
	failing.log = log.New(&text, "", 0)
	run := func() {
		failing.run(context.Background(), &Review{payload: &payload{requestJSON: []byte("{}")}})
	}
	failing.quietUntil = time.Now().Add(time.Hour)
	for range 4 {
		run()
	}
	if text.Len() > 0 {
		t.Errorf("logged %q", text.String())
	}
	failing.quietUntil = time.Time{}
	run()
	if !strings.Contains(text.String(), `error="panic: bang" dropped=4`+"\n") {
		t.Errorf("logged %q", text.String())
	}
}

func TestATraceparentIsValidOrEmpty(t *testing.T) {
	zero := strings.Repeat("0", 32)
	for _, text := range []string{
		"", "garbage", traceparent[1:], traceparent + "0", traceparent + "-x", strings.ToUpper(traceparent), "ff" + traceparent[2:],
		"00-" + zero + traceparent[35:], traceparent[:36] + zero[:16] + traceparent[52:], strings.Repeat("x", 1<<20),
		strings.Replace(traceparent, "-", "\n", 1),
	} {
		if got := (&Review{traceparent: text}).Traceparent(); got != "" {
			t.Errorf("%.80q became %q", text, got)
		}
	}
	review, err := ParseReview([]byte("{}"), WithTraceparent(traceparent))
	if err != nil || review.Traceparent() != traceparent {
		t.Errorf("got %q, %v", review.Traceparent(), err)
	}
}
