package worker

import (
	"context"
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"sync"
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

// stackInterval is how often the failures of one policy are logged: logging each one of a broken policy would
// cost more than all the other policies.
const stackInterval = time.Second

// policy is a registered policy.
type policy struct {
	name        string
	description string
	version     string
	mutating    bool
	function    PolicyFunc
	place       string
	log         *log.Logger

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

// answer calls the policy and hands over the outcome, also that of one that ends its goroutine.
func (p *policy) answer(ctx context.Context, review *Review, settle func(outcome)) {
	result := internalError("the policy ended its goroutine (runtime.Goexit)")
	defer func() { settle(result) }()
	result = p.run(ctx, review)
}

// run calls the policy and returns the outcome.
func (p *policy) run(ctx context.Context, review *Review) (result outcome) {
	defer func() {
		if problem := recover(); problem != nil {
			result = p.panicked(review, problem)
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
