package main

import (
	"context"
	"runtime"
)

// turns bounds how many calls are evaluated at a time: as many as there are processors, as in Gatekeeper
// (gatekeeper:pkg/webhook/policy.go). Each constraint has its own, so that the calls of one that loops leave the processors to
// others. Nil does not bound: a policy that asks an external provider waits for it.
type turns chan struct{}

func newTurns() turns { return make(turns, runtime.GOMAXPROCS(0)) }

// enter waits for a turn, and returns what ends it; or the error of ctx.
func (t turns) enter(ctx context.Context) (func(), error) {
	if t == nil {
		return func() {}, nil
	}
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
