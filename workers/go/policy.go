package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
)

// PolicyFunc decides on one review: nil allows, the error of [Deny] denies, any other error is a failure of
// the webhook. It may block, and several goroutines call it concurrently. ctx has the deadline of the call, and is
// cancelled when the answer is no longer needed.
//
// A panic is recovered, except in a goroutine that the policy has started.
type PolicyFunc func(ctx context.Context, review *Review) error

// PolicyOption is an option of a policy's registration.
type PolicyOption func(*policy)

// WithVersion sets an opaque version of the policy's code and settings, for logs and caches of the gateway.
func WithVersion(version string) PolicyOption {
	return func(registered *policy) { registered.version = version }
}

// policy is a registered policy.
type policy struct {
	name        string
	description string
	version     string
	mutating    bool
	// schema is the JSON Schema of the parameters, and prepare makes them; nil: the policy takes none.
	schema   string
	prepare  func(json.RawMessage) (any, error)
	prepared prepared
	function PolicyFunc
	place    string
	log      *log.Logger
	// meter is nil without metrics.
	meter *meter

	// isSlow is set while calls run in goroutines of their own, because one took long.
	isSlow atomic.Bool
	// quickCalls counts calls in a row that did not.
	quickCalls atomic.Int32

	mu         sync.Mutex
	quietUntil time.Time
	unlogged   int
}

const (
	// quickTime is the time in which a call of a policy that is not slow returns, for each quickBytes of its payload: a
	// policy that looks at a large object computes for longer, but does not wait.
	quickTime  = time.Millisecond
	quickBytes = 16 * 1024
	// quickCalls is how many calls in a row end the time of a slow policy.
	quickCalls = 16
)

// ran records the time that a call of a slow policy took.
func (p *policy) ran(took time.Duration, bytes int) {
	if took > quickTime*time.Duration(1+bytes/quickBytes) {
		p.quickCalls.Store(0)
	} else if p.quickCalls.Add(1) >= quickCalls {
		p.quickCalls.Store(0)
		p.isSlow.Store(false)
	}
}

func checkName(name string) error {
	printable := utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if strings.TrimSpace(name) == "" || !printable {
		return fmt.Errorf("the name of a policy is some printable text, found %q", name)
	}
	return nil
}

// answer calls the policy and delivers the outcome, also if the policy ends its goroutine.
func (p *policy) answer(ctx context.Context, review *Review, settle func(outcome)) {
	result := exited
	defer func() { settle(result) }()
	result = p.run(ctx, review)
}

// run calls the policy and returns the outcome.
func (p *policy) run(ctx context.Context, review *Review) outcome {
	if reason := p.takeParameters(review); reason != "" {
		return errorOutcome(codes.InvalidArgument, reason)
	}
	result := p.decide(ctx, review)
	if len(review.parametersJSON) > 0 {
		return result.withParameters()
	}
	return result
}

// decide calls the policy with its parameters.
func (p *policy) decide(ctx context.Context, review *Review) (result outcome) {
	hasReturned := false
	defer func() {
		if problem := recover(); problem != nil {
			result = p.panicked(review, problem)
		} else if !hasReturned {
			p.logFailure(review, exited.err.Message, nil)
		}
	}()
	err := p.function(ctx, review)
	hasReturned = true
	switch {
	case review.err != nil:
		return malformedOutcome(review.err)
	case err != nil:
		return p.failed(ctx, review, err)
	case !p.mutating && len(review.warnings) == 0 && len(review.annotations) == 0:
		return allowed
	}
	operations, err := review.Changes()
	switch {
	case review.err != nil:
		return malformedOutcome(review.err)
	case err != nil:
		return p.failed(ctx, review, err)
	}
	return allowedWith(review, operations)
}

func (p *policy) failed(ctx context.Context, review *Review, err error) outcome {
	if denial, ok := denialIn(err); ok {
		return denied(review, denial)
	}
	if stopped, ok := stoppedOutcome(ctx); ok {
		// An error after the cancellation is not a failure of the policy.
		return stopped
	}
	text := err.Error()
	p.logFailure(review, fmt.Sprintf("%T: %s", err, text), nil)
	return internalError(text)
}

func (p *policy) panicked(review *Review, problem any) (result outcome) {
	defer func() {
		if recover() != nil { // in a method of the problem
			result = internalError(fmt.Sprintf("a panic with a %T that panics itself", problem))
		}
	}()
	if err, ok := problem.(error); ok {
		if denial, ok := denialIn(err); ok {
			return denied(review, denial)
		}
	}
	text := fmt.Sprint(problem)
	p.logFailure(review, "panic: "+text, debug.Stack())
	return internalError(text)
}
