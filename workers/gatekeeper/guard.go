package main

import (
	"context"
	"fmt"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// guardInterval is how often the memory is looked at while something is evaluated. A policy that only allocates takes
	// some 20 MB in it.
	guardInterval = 20 * time.Millisecond
	// guardAge is how long an evaluation is left alone: an ordinary one takes less than a millisecond.
	guardAge = 50 * time.Millisecond
)

// guard ends evaluations while the worker holds more memory than its limit, GOMEMLIMIT. OPA and CEL have no limit of
// memory of their own; OPA ends an evaluation at its next step when its context is cancelled. The oldest goes first: one that allocates so
// much has run for long.
type guard struct {
	// isOver reports whether the memory is above the limit, and what it is.
	isOver func() (bool, uint64)

	mu         sync.Mutex
	running    map[*guarded]bool
	isWatching bool
}

// guarded is an evaluation that runs.
type guarded struct {
	began time.Time
	end   context.CancelCauseFunc
}

func newGuard() *guard { return &guard{isOver: memoryIsOver, running: make(map[*guarded]bool)} }

// begin returns a context that is cancelled if the evaluation has to end; it has to be given to end.
func (g *guard) begin(ctx context.Context) (context.Context, *guarded) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := &guarded{began: time.Now(), end: cancel}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[begun] = true
	if !g.isWatching {
		g.isWatching = true
		time.AfterFunc(guardInterval, g.watch)
	}
	return ctx, begun
}

// end says that an evaluation has ended.
func (g *guard) end(ended *guarded) {
	ended.end(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, ended)
}

// watch looks at the memory until nothing is evaluated.
func (g *guard) watch() {
	isOver, limit := g.isOver()
	g.mu.Lock()
	defer g.mu.Unlock()
	if isOver {
		g.endOldest(limit)
	}
	if g.isWatching = len(g.running) > 0; g.isWatching {
		time.AfterFunc(guardInterval, g.watch)
	}
}

// endOldest ends the evaluation that has run for longest; requires the mutex.
func (g *guard) endOldest(limit uint64) {
	var oldest *guarded
	for each := range g.running {
		if time.Since(each.began) > guardAge && (oldest == nil || each.began.Before(oldest.began)) {
			oldest = each
		}
	}
	if oldest != nil {
		oldest.end(fmt.Errorf("the evaluation was ended after %v: the worker holds more than its memory limit of %d MiB",
			time.Since(oldest.began).Round(time.Millisecond), limit>>20))
		delete(g.running, oldest)
	}
}

// memoryIsOver reports whether more is live than nine tenths of Go's memory limit, or more is held than five quarters of it,
// because garbage cannot be collected as fast as it is made.
func memoryIsOver() (bool, uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/gomemlimit:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	limit, live := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	held := samples[2].Value.Uint64() - samples[3].Value.Uint64()
	return live > limit/10*9 || held > limit/4*5, limit
}
