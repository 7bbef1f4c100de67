package main

import (
	"context"
	"fmt"
	"runtime"
)

// turns bounds how many evaluations run. Nothing ends a pattern or an expression: an evaluation whose call is over keeps its turn, so
// that those that do not end cannot pile up.
type turns chan struct{}

// newTurns returns as many turns as keep the processors busy while some evaluations wait for the API server.
func newTurns() turns { return make(turns, max(8, 4*runtime.GOMAXPROCS(0))) }

// share returns the turns of one policy: a quarter of all, so that one that does not end leaves the others to other policies.
func (t turns) share() turns { return make(turns, max(1, cap(t)/4)) }

// enter waits for a turn, which the returned function gives back.
func (t turns) enter(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	default:
	}
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%d evaluations run already, and none has ended in time: %w", cap(t), context.Cause(ctx))
	}
}
