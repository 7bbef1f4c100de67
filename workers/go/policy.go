package worker

import (
	"context"
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

// PolicyFunc decides on one review: nil allows, the error of [Deny] denies, anything else is a failure of the
// webhook. It may block, and is called by several goroutines at a time. ctx carries the deadline until which
// the gateway waits, and is cancelled when the answer is no longer wanted.
//
// A panic is caught, but not one in a goroutine that the policy has started: no program can catch that.
type PolicyFunc func(ctx context.Context, review *Review) error

// PolicyOption adds to what a policy is registered with.
type PolicyOption func(*policy)

// WithVersion sets a text that stands for the policy's code and settings, for the logs and caches of the gateway.
func WithVersion(version string) PolicyOption {
	return func(registered *policy) { registered.version = version }
}

const (
	// quickRun is what a policy may take for being run in its turn rather than beside the others. A review's
	// JSON is parsed in some tens of microseconds.
	quickRun = 500 * time.Microsecond
	// largeReview is where parsing takes long whatever the policy does.
	largeReview = 64 * 1024

	slowPoints = 16
	// apartAt takes four slow runs among a few quick ones: on a busy machine any policy is slow now and then,
	// since it is kept waiting for a CPU.
	apartAt = 3*slowPoints + 1
	// mostPoints keeps a policy that has become quick apart for a hundred runs at most.
	mostPoints = 128
)

// stackInterval is how often the failures of one policy are logged: logging each one of a broken policy would
// cost more than all the other policies.
const stackInterval = time.Second

// policy is a registered policy, and what was learnt about it.
type policy struct {
	name        string
	description string
	version     string
	mutating    bool
	function    PolicyFunc
	place       string
	log         *log.Logger

	// slowness goes up with each slow run and down with each quick one.
	slowness atomic.Int32

	mu         sync.Mutex
	quietUntil time.Time
	unlogged   int
}

func checkName(name string) error {
	printable := !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if strings.TrimSpace(name) == "" || !printable {
		return fmt.Errorf("the name of a policy is some printable text, found %q", name)
	}
	return nil
}

// apart tells whether the policy has its own goroutine for each call, since it waits or computes for long.
func (p *policy) apart() bool { return p.slowness.Load() >= apartAt }

// took notes how long a run took.
func (p *policy) took(elapsed time.Duration, review *Review) {
	if elapsed <= quickRun {
		if p.slowness.Load() > 0 {
			p.slowness.Add(-1)
		}
	} else if len(review.payload) <= largeReview && p.slowness.Load() < mostPoints {
		p.slowness.Add(slowPoints)
	}
}

// run calls the policy and returns the outcome.
func (p *policy) run(ctx context.Context, review *Review) (result outcome) {
	defer func() {
		if problem := recover(); problem != nil {
			result = p.panicked(ctx, review, problem)
		}
	}()
	err := p.function(ctx, review)
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
		// What a policy returns because it was stopped is not its own failure.
		return stopped
	}
	p.logFailure(err.Error(), nil)
	return internalError(err.Error())
}

func (p *policy) panicked(ctx context.Context, review *Review, problem any) outcome {
	if err, ok := problem.(error); ok {
		if denial, ok := denialIn(err); ok {
			return denied(review, denial)
		}
	}
	text := fmt.Sprint(problem)
	p.logFailure("panic: "+text, debug.Stack())
	return internalError(text)
}

func (p *policy) logFailure(text string, stack []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.quietUntil) {
		p.unlogged++
		return
	}
	more := ""
	if p.unlogged > 0 {
		more = fmt.Sprintf(" (%d failures since the last one shown)", p.unlogged)
	}
	if stack != nil {
		text += "\n" + strings.TrimSpace(string(stack))
	}
	p.log.Printf("policy %q failed%s: %s", p.name, more, text)
	p.quietUntil, p.unlogged = now.Add(stackInterval), 0
}
