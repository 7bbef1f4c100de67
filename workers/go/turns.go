package worker

import (
	"container/list"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxEvaluatedBytes is the limit of the JSON of the calls that are evaluated at a time: it takes several times as much
	// when it is parsed. A connection gets at most half of what the others leave.
	maxEvaluatedBytes = 32 * 1024 * 1024
	// stepBytes is the length of JSON from which parsing, copying and comparing it are steps that take turns.
	stepBytes = 4 * 1024
	// longStepBytes is the length from which a step is long: it leaves a processor to the others.
	longStepBytes = 256 * 1024
)

// turns lets waiters of all connections go on while there is room, one connection after another.
type turns struct {
	// kind is the index of the share of a client.
	kind  int
	limit int
	// isShared is set if a connection gets at most half of the room that the others leave.
	isShared bool

	mu   sync.Mutex
	used int
	// ring has the clients that wait; the first one is the next.
	ring []*share
}

// share is what one connection uses and waits for.
type share struct {
	used    int
	waiting list.List
}

// waiter waits for its turn: ready is closed when it has it, or when it is given up.
type waiter struct {
	of     *client
	weight int
	ready  chan struct{}
	place  *list.Element
	// isTurn is set once it has had its turn.
	isTurn bool
}

const (
	evaluated = iota
	steps
	longSteps
	kinds
)

// ask returns nil if the client can go on at once, and otherwise what it waits for.
func (t *turns) ask(of *client, weight int) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	asking := &of.shares[t.kind]
	if asking.waiting.Len() == 0 && t.take(asking, weight) {
		return nil
	}
	if asking.waiting.Len() == 0 {
		t.ring = append(t.ring, asking)
	}
	made := &waiter{of: of, weight: weight, ready: make(chan struct{})}
	made.place = asking.waiting.PushBack(made)
	return made
}

// take uses the room, if it is there; requires the mutex.
func (t *turns) take(asking *share, weight int) bool {
	room := t.limit - t.used
	if t.isShared {
		room = (t.limit-t.used+asking.used)/2 - asking.used
	}
	if t.used > 0 && weight > room {
		return false
	}
	t.used += weight
	asking.used += weight
	return true
}

// give gives the room back.
func (t *turns) give(of *client, weight int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used -= weight
	of.shares[t.kind].used -= weight
	t.next()
}

// next lets waiters go on while there is room for one; requires the mutex.
func (t *turns) next() {
	for at := 0; at < len(t.ring); {
		asking := t.ring[at]
		first := asking.waiting.Front().Value.(*waiter)
		if !t.take(asking, first.weight) {
			at++
			continue
		}
		asking.waiting.Remove(first.place)
		first.isTurn = true
		close(first.ready)
		t.ring = slices.Delete(t.ring, at, at+1)
		if asking.waiting.Len() > 0 {
			t.ring = append(t.ring, asking)
		}
	}
}

// giveUp ends the wait; nothing happens if the waiter has its turn already.
func (t *turns) giveUp(waiting *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if waiting.isTurn || waiting.place == nil {
		return
	}
	asking := &waiting.of.shares[t.kind]
	asking.waiting.Remove(waiting.place)
	waiting.place = nil
	if asking.waiting.Len() == 0 {
		t.ring = slices.DeleteFunc(t.ring, func(other *share) bool { return other == asking })
	}
	close(waiting.ready)
}

// limits are the bounds of a worker, for all its connections together.
type limits struct {
	// evaluated counts the bytes of JSON that are evaluated.
	evaluated *turns
	// steps counts the goroutines that parse, copy or compare JSON: with more than there are processors, the calls of
	// others would wait for all of them.
	steps, longSteps *turns
	// parameters has what streams keep, and received what has arrived and is not answered.
	parameters, received *store
	// rpcs has the open calls.
	rpcs *store
	// watchInterval is the interval at which streams look for calls that take long.
	watchInterval time.Duration
}

// excessRPC is why a call ends whose client has most of them; nil for any other end.
func excessRPC(ctx context.Context) error {
	if found, ok := status.FromError(context.Cause(ctx)); ok && found.Code() == codes.ResourceExhausted {
		return found.Err()
	}
	return nil
}

func newLimits() *limits {
	processors := runtime.GOMAXPROCS(0)
	return &limits{
		evaluated:  &turns{kind: evaluated, limit: maxEvaluatedBytes, isShared: true},
		steps:      &turns{kind: steps, limit: processors},
		longSteps:  &turns{kind: longSteps, limit: max(1, processors/2)},
		parameters: newStore("bytes of parameters", maxKeptParametersBytes),
		received:   newStore("bytes of requests", maxReceivedBytes), rpcs: newStore("open calls", maxRPCs),
		watchInterval: watchInterval,
	}
}

// step does work on a document of so many bytes, when it is the turn of the client.
func (l *limits) step(of *client, bytes int, work func()) {
	if l == nil || of == nil || bytes < stepBytes {
		work()
		return
	}
	turns := l.steps
	if bytes >= longStepBytes {
		turns = l.longSteps
	}
	if waiting := turns.ask(of, 1); waiting != nil {
		<-waiting.ready
	}
	defer turns.give(of, 1)
	work()
}
