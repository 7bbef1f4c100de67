package worker

import (
	"runtime"
	"sync/atomic"
	"time"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// turnLimit is how long the calls of a batch may hold up the stream. Past it another goroutine takes over.
const turnLimit = time.Millisecond

// turn is one goroutine's time as the reader of a stream. It reads a batch, runs its calls one after the
// other, sends the verdicts and reads on: for policies that do not wait nothing is handed from one goroutine to
// another, and sixteen verdicts cost one write.
//
// When a batch has taken turnLimit, because a policy blocks or because the gateway is slow to take verdicts,
// another goroutine takes over: it shares what is left of the batch with the first one, and becomes the reader.
// A policy that was slow several times gets a goroutine for each call.
type turn struct {
	stream *stream
	timer  *time.Timer
	batch  atomic.Pointer[work]
	// over is set once another goroutine has taken over.
	over    atomic.Bool
	current atomic.Pointer[call]
}

// work is a batch of calls that several turns may take from.
type work struct {
	calls []*call
	next  atomic.Int64
}

func newTurn(s *stream) *turn {
	t := &turn{stream: s}
	t.timer = time.AfterFunc(time.Hour, t.handOver)
	t.timer.Stop()
	return t
}

// read reads and answers batches until the stream ends, or another turn takes over.
func (t *turn) read() {
	for {
		batch, err := t.stream.receive()
		if err != nil {
			t.stream.readEnded(err)
			return
		}
		if !t.take(batch) {
			return
		}
	}
}

// take answers a batch and returns whether this is still the turn that reads.
func (t *turn) take(batch *pb.ReviewBatch) bool {
	calls := t.stream.accept(batch)
	if t.stream.closed.Load() {
		return false
	}
	return t.run(&work{calls: calls})
}

// run runs calls until none is left, sends the verdicts, and returns whether this is still the turn that reads.
func (t *turn) run(batch *work) bool {
	t.batch.Store(batch)
	t.timer.Reset(turnLimit)
	defer t.abandon()
	now := time.Now()
	for index := batch.next.Add(1) - 1; index < int64(len(batch.calls)); index = batch.next.Add(1) - 1 {
		now = t.answer(batch.calls[index], now)
	}
	t.stream.flush()
	return t.timer.Stop()
}

// answer runs one call and returns when it ended.
func (t *turn) answer(call *call, now time.Time) time.Time {
	if t.stream.closed.Load() {
		return now
	}
	if !now.Before(call.context.deadline) {
		t.stream.settle(call, tooLate())
		return now
	}
	if call.policy.apart() {
		go t.stream.runApart(call)
		return now
	}
	call.began = now
	t.current.Store(call)
	if t.over.Load() {
		call.watch() // nobody watches this turn any more
	}
	result := call.policy.run(&call.context, &call.review)
	call.context.end()
	t.current.Store(nil)
	ended := time.Now()
	if !call.counted.Load() {
		call.policy.took(ended.Sub(now), &call.review)
	}
	t.stream.settle(call, result)
	return ended
}

// abandon settles the call of a policy that has ended its goroutine. The turn is taken over all the same.
func (t *turn) abandon() {
	if call := t.current.Load(); call != nil {
		t.stream.settle(call, exited())
		t.stream.flush()
	}
}

func exited() outcome {
	return internalError("the policy ended its goroutine (runtime.Goexit)")
}

// handOver runs in a new goroutine when the turn has lasted too long, and goes on in its place.
func (t *turn) handOver() {
	t.over.Store(true)
	if call := t.current.Load(); call != nil {
		call.watch()
		if elapsed := time.Since(call.began); elapsed > quickRun {
			call.counted.Store(true)
			call.policy.took(elapsed, &call.review) // it may not come back for long
		}
	}
	go t.stream.flush()
	next := newTurn(t.stream)
	if next.run(t.batch.Load()) {
		next.read()
	}
}

// runApart runs a call in a goroutine of its own.
func (s *stream) runApart(call *call) {
	result := outcome{}
	defer func() {
		if result == (outcome{}) {
			result = exited()
		}
		call.context.end()
		s.settle(call, result)
		// Those that end at the same time go first, so that one message has the verdicts of all.
		runtime.Gosched()
		s.flush()
	}()
	call.watch()
	began := time.Now()
	result = call.policy.run(&call.context, &call.review)
	call.policy.took(time.Since(began), &call.review)
}
