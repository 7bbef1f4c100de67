package worker

import (
	"fmt"
	"runtime"
	"time"

	"google.golang.org/grpc/codes"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// watchInterval is the interval at which a stream looks for calls that take long. A timer for each batch would cost
	// 100 us of CPU at 500 reviews a second, because it wakes up another thread.
	watchInterval = 5 * time.Millisecond
	// idleWatches is how often it looks without finding anything before it pauses until the next batch.
	idleWatches = 20
	// maxChainedBytes is the limit of the patches that lead to the object of a call in a chain.
	maxChainedBytes = 512 * 1024
)

var tooLongChain = errorOutcome(
	codes.ResourceExhausted, fmt.Sprintf("the calls before this one leave patches of more than %d bytes", maxChainedBytes),
)

// call is one call of a stream.
type call struct {
	id      uint64
	policy  *policy
	timeout time.Duration
	// traceparent is not yet validated.
	traceparent string
	// parameters have the JSON of the parameters; nil: none.
	parameters *kept
	// sent is the payload as it was sent.
	sent *kept
	// started is zero until the policy has begun, and without metrics.
	started time.Time
	// payload is nil while the call waits for the call that it is after.
	payload *payload
	review  Review
	ctx     callContext
	// next has the calls that are after this one.
	next []*call
	// isChained is set for a call that is after another one.
	isChained bool
	// waiting is set while the call waits for its turn.
	waiting *waiter
	// weight is the number of bytes with which it is evaluated.
	weight int
	// isBegun is set once its policy has begun.
	isBegun bool
}

// group has calls for one version of a payload.
type group struct {
	payload *payload
	calls   []*call
}

func (s *stream) newGroup(sent *pb.Payload) *group {
	return &group{payload: &payload{
		requestJSON: sent.AdmissionRequest, namespaceJSON: sent.NamespaceObject, of: s.of, limits: s.limits,
	}}
}

// run evaluates calls one after another in its goroutine: a goroutine for each call costs more than a quick policy, and
// the calls of a payload share what is parsed. Calls that take long delay no others for longer than two intervals:
// then [run.relieve] moves the others to another goroutine. The calls of a payload are evaluated one after another as long
// as each of them is quick, because each other goroutine would parse the payload again. The stream's mutex guards the fields.
type run struct {
	*stream
	// isReader is set in the run that reads the next batch when it has evaluated the last one.
	isReader bool
	current  *group
	waiting  []*group
	// evaluating is the call that is being evaluated; nil while it waits for its turn.
	evaluating *call
	// watches and callWatches count the intervals that began since the run and the call began, without its steps.
	watches, callWatches int
	// progress is that of the payload at the last watch.
	progress int32
}

// work evaluates the waiting calls, and in the reader those of the following batches.
func (r *run) work() {
	ended := false
	defer func() {
		if !ended {
			go r.work() // a policy has ended this goroutine (runtime.Goexit)
		}
	}()
	for r.evaluate() && r.read() {
	}
	ended = true
}

// evaluate evaluates the waiting calls, and returns whether this run reads the next batch.
func (r *run) evaluate() bool {
	r.mu.Lock()
	r.watches = 0
	r.keepWatch()
	for begun := r.next(); begun != nil; begun = r.next() {
		if !r.admit(begun) {
			continue
		}
		begun.isBegun = true
		r.evaluating, r.callWatches = begun, 0
		r.running++
		begun.started = begun.policy.meter.begin()
		r.mu.Unlock()
		r.call(begun)
		r.mu.Lock()
	}
	isReader := r.isReader
	r.mu.Unlock()
	if !isReader {
		// The other runs that are ready add their verdicts to the same message: a slow policy has a run for each call.
		runtime.Gosched()
	}
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, r)
	r.limits.received.set(r.receivedPart, r.received)
	return r.isReader
}

// next returns the next call that still needs an answer, nil if there is none; requires the mutex.
func (r *run) next() *call {
	for {
		for r.current != nil && len(r.current.calls) > 0 {
			first := r.current.calls[0]
			r.current.calls = r.current.calls[1:]
			isAlone := len(r.current.calls) == 0 && len(r.waiting) == 0
			switch {
			case r.inFlight[first.id] != first:
			case first.policy.isSlow.Load() && !isAlone:
				r.start(first)
			default:
				return first
			}
		}
		if len(r.waiting) == 0 {
			r.current = nil
			return nil
		}
		r.current, r.waiting = r.waiting[0], r.waiting[1:]
		r.keepWatch()
	}
}

// admit waits until there is room for another answer and another evaluation, and returns whether the call still needs
// one; requires the mutex, which it releases while it waits.
func (r *run) admit(begun *call) bool {
	r.evaluating = nil
	for r.out.unsent >= maxMessageBytes && !r.closed {
		r.out.room.Wait()
	}
	if r.inFlight[begun.id] != begun {
		return false
	}
	begun.weight = begun.payload.bytes()
	begun.waiting = r.limits.evaluated.ask(r.of, begun.weight)
	if begun.waiting == nil {
		return true
	}
	waiting := begun.waiting
	r.mu.Unlock()
	<-waiting.ready
	r.mu.Lock()
	begun.waiting = nil
	switch {
	case !waiting.isTurn:
		return false
	case r.inFlight[begun.id] != begun:
		r.limits.evaluated.give(r.of, begun.weight)
		return false
	}
	return true
}

// call evaluates the call, also if the policy ends its goroutine.
func (r *run) call(begun *call) {
	result := exited
	defer func() { r.finish(begun, result) }()
	begun.review = Review{
		payload: begun.payload, mutating: begun.policy.mutating, traceparent: begun.traceparent,
		parametersJSON: begun.parameters.text(),
	}
	if !begun.policy.isSlow.Load() {
		result = begun.policy.run(&begun.ctx, &begun.review)
		return
	}
	start, stepped := time.Now(), begun.payload.stepped
	result = begun.policy.run(&begun.ctx, &begun.review)
	begun.policy.ran(time.Since(start)-(begun.payload.stepped-stepped), begun.weight)
}

// finish records the outcome of a call, and lets the calls after it wait here.
func (r *run) finish(ended *call, result outcome) {
	ended.ctx.cancel()
	used := ended.payload
	// The slices of the batch keep the call, but not what it has parsed.
	ended.review = Review{}
	r.mu.Lock()
	r.running--
	r.evaluating = nil
	isShared := len(r.current.calls) > 0 || len(ended.next) > 0 || used.hasVersions
	isPassedOn := r.settle(ended, result) && len(ended.next) > 0
	r.drop(ended)
	r.mu.Unlock()
	r.limits.evaluated.give(r.of, ended.weight)
	isIntact := !isShared || used.isIntact()
	if !isIntact {
		// The policy has changed what others get, or are going to get.
		used.forget()
	}
	version := used
	if isPassedOn && len(result.response.GetPatch()) > 0 && result.response.GetAllowed() {
		version = used.after(result.response.Patch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isIntact {
		for _, later := range r.waiting {
			later.payload.forget()
		}
	}
	if !isPassedOn {
		return
	}
	released := r.release(ended, version)
	if version.patches != nil && version.patches.bytes > maxChainedBytes {
		for _, later := range released.calls {
			r.refuse(later, tooLongChain)
		}
		return
	}
	r.waiting = append([]*group{released}, r.waiting...)
}

// refuse answers a call that has not begun, and those after it; requires the mutex.
func (s *stream) refuse(refused *call, result outcome) {
	if s.settle(refused, result) {
		for _, later := range refused.next {
			s.refuse(later, result)
		}
	}
}

// settle adds the outcome to the next message, unless the call is already answered or cancelled; requires the mutex.
func (s *stream) settle(ended *call, result outcome) bool {
	if s.inFlight[ended.id] != ended {
		return false
	}
	s.leave(ended)
	ended.policy.meter.end(ended.started, result)
	s.out.add(&pb.Verdict{Id: ended.id, Chained: ended.isChained}, result)
	return true
}

// leave takes a call out of those in flight; requires the mutex.
func (s *stream) leave(ended *call) {
	delete(s.inFlight, ended.id)
	if ended.waiting != nil {
		s.limits.evaluated.giveUp(ended.waiting)
	}
	if !ended.isBegun {
		s.drop(ended)
	}
}

// release returns the calls after one that has ended as a group for their version of the payload; requires the mutex.
func (s *stream) release(ended *call, version *payload) *group {
	released := &group{payload: version}
	now := time.Now()
	for _, later := range ended.next {
		if s.inFlight[later.id] == later {
			s.prepare(later, version, now)
			released.calls = append(released.calls, later)
		}
	}
	released.share()
	return released
}

// prepare sets the payload and the deadline of a call; requires the mutex.
func (s *stream) prepare(begun *call, version *payload, now time.Time) {
	begun.payload = version
	begun.ctx.stream, begun.ctx.deadline = s.rpc.Context(), now.Add(begun.timeout)
	s.expireAt(begun.ctx.deadline)
}

// share marks the payload if several calls use it or a version of it.
func (g *group) share() {
	if len(g.calls) > 1 || len(g.calls) == 1 && len(g.calls[0].next) > 0 {
		g.payload.shared = true
	}
}

// start evaluates a group in another goroutine; requires the mutex.
func (s *stream) start(calls ...*call) {
	if len(calls) == 0 {
		return
	}
	moved := &group{payload: calls[0].payload.fresh(), calls: calls}
	moved.share()
	for _, later := range calls {
		later.payload = moved.payload
	}
	go (&run{stream: s, waiting: []*group{moved}}).work()
}

// move evaluates groups in one other goroutine; requires the mutex.
func (s *stream) move(groups []*group) {
	if len(groups) == 0 {
		return
	}
	for _, each := range groups {
		each.payload = each.payload.fresh()
		each.share()
		for _, later := range each.calls {
			later.payload = each.payload
		}
	}
	go (&run{stream: s, waiting: groups}).work()
}

// keepWatch has the run looked at after an interval; requires the mutex.
func (r *run) keepWatch() {
	r.runs[r], r.idleWatches = true, 0
	if !r.isWatching {
		r.isWatching = true
		r.watcher.Reset(r.limits.watchInterval)
	}
}

// watch relieves runs that take long.
func (s *stream) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for busy := range s.runs {
		busy.watches++
		busy.callWatches++
		if busy.evaluating != nil {
			// An odd number: a step has begun. Steps say nothing of the policy.
			if now := busy.evaluating.payload.progress.Load(); now != busy.progress || now%2 == 1 {
				busy.progress, busy.callWatches = now, 0
			}
		}
		if busy.watches > 1 {
			busy.relieve()
		}
	}
	if s.idleWatches++; len(s.runs) > 0 {
		s.idleWatches = 0
	}
	if s.isWatching = s.idleWatches < idleWatches; s.isWatching {
		s.watcher.Reset(s.limits.watchInterval)
	}
}

// relieve moves the work behind a call that takes long to another goroutine, or half of the work of a run that does, if
// there are processors for it; requires the mutex.
func (r *run) relieve() {
	if r.evaluating != nil && r.callWatches > 1+r.evaluating.weight/quickBytes {
		r.evaluating.policy.isSlow.Store(true)
		groups := r.waiting
		if len(r.current.calls) > 0 {
			groups = append([]*group{{payload: r.current.payload, calls: r.current.calls}}, groups...)
		}
		r.current.calls, r.waiting = nil, nil
		r.move(groups)
		delete(r.runs, r)
	} else if half := len(r.waiting) / 2; half > 0 && len(r.runs) < runtime.GOMAXPROCS(0) {
		r.move(r.waiting[len(r.waiting)-half:])
		r.waiting = r.waiting[:len(r.waiting)-half]
	}
	if r.isReader {
		r.isReader = false
		go (&run{stream: r.stream, isReader: true}).work()
	}
	go r.flush()
}
