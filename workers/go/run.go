package worker

import (
	"time"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// watchInterval is the interval at which a stream looks for calls that take long. A timer for each batch would cost
	// 100 us of CPU at 500 reviews a second, because it wakes up another thread.
	watchInterval = 5 * time.Millisecond
	// idleWatches is how often it looks without finding anything before it pauses until the next batch.
	idleWatches = 20
)

// call is one call of a stream.
type call struct {
	id      uint64
	policy  *policy
	timeout time.Duration
	// traceparent is not yet validated.
	traceparent string
	// parameters have the JSON of the parameters; empty: none.
	parameters []byte
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
}

// group has calls for one version of a payload.
type group struct {
	payload *payload
	calls   []*call
}

func newGroup(sent *pb.Payload) *group {
	return &group{payload: &payload{requestJSON: sent.AdmissionRequest, namespaceJSON: sent.NamespaceObject}}
}

// run evaluates calls one after another in its goroutine: a goroutine for each call costs more than a quick policy, and
// the calls of a payload share what is parsed. Calls that take long delay no others for longer than two intervals:
// then [run.relieve] moves the others to goroutines of their own. The stream's mutex guards the fields.
type run struct {
	*stream
	// isReader is set in the run that reads the next batch when it has evaluated the last one.
	isReader bool
	current  *group
	waiting  []*group
	// evaluating is the call of the current group that is being evaluated.
	evaluating *call
	// watches and groupWatches count the intervals that began since the run and its current group began.
	watches, groupWatches int
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
		r.running++
		begun.started = begun.policy.meter.begin()
		r.mu.Unlock()
		r.call(begun)
		r.mu.Lock()
	}
	r.mu.Unlock()
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, r)
	return r.isReader
}

// next returns the next call that still needs an answer, nil if there is none; requires the mutex.
func (r *run) next() *call {
	for {
		for r.current != nil && len(r.current.calls) > 0 {
			first := r.current.calls[0]
			r.current.calls = r.current.calls[1:]
			if r.inFlight[first.id] == first {
				r.evaluating = first
				return first
			}
		}
		if len(r.waiting) == 0 {
			r.current = nil
			return nil
		}
		r.current, r.waiting = r.waiting[0], r.waiting[1:]
		r.groupWatches = 0
		r.keepWatch()
	}
}

// call evaluates the call, also if the policy ends its goroutine.
func (r *run) call(begun *call) {
	result := exited
	defer func() { r.finish(begun, result) }()
	begun.review = Review{
		payload: begun.payload, mutating: begun.policy.mutating, traceparent: begun.traceparent,
		parametersJSON: begun.parameters,
	}
	if !begun.policy.isSlow.Load() {
		result = begun.policy.run(&begun.ctx, &begun.review)
		return
	}
	start := time.Now()
	result = begun.policy.run(&begun.ctx, &begun.review)
	begun.policy.ran(time.Since(start))
}

// finish records the outcome of a call, and lets the calls after it wait here.
func (r *run) finish(ended *call, result outcome) {
	ended.ctx.cancel()
	used := ended.payload
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	isShared := len(r.current.calls) > 0 || len(ended.next) > 0 || used.hasVersions
	if isShared && !used.isIntact() {
		// The policy has changed what others get, or are going to get.
		used.forget()
		for _, later := range r.waiting {
			later.payload.forget()
		}
	}
	if !r.settle(ended, result) || len(ended.next) == 0 {
		return
	}
	if result.response.GetAllowed() && len(result.response.GetPatch()) > 0 {
		used = used.after(result.response.Patch)
	}
	r.waiting = append([]*group{r.release(ended, used)}, r.waiting...)
}

// settle adds the outcome to the next message, unless the call is already answered or cancelled; requires the mutex.
func (s *stream) settle(ended *call, result outcome) bool {
	if s.inFlight[ended.id] != ended {
		return false
	}
	delete(s.inFlight, ended.id)
	ended.policy.meter.end(ended.started, result)
	s.out.add(&pb.Verdict{Id: ended.id, Chained: ended.isChained}, result)
	return true
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

// keepWatch has the run looked at after an interval; requires the mutex.
func (r *run) keepWatch() {
	r.runs[r], r.idleWatches = true, 0
	if !r.isWatching {
		r.isWatching = true
		r.watcher.Reset(watchInterval)
	}
}

// watch relieves runs that take long.
func (s *stream) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for busy := range s.runs {
		busy.watches++
		busy.groupWatches++
		if busy.watches > 1 {
			busy.relieve()
		}
	}
	s.idleWatches++
	if s.isWatching = s.idleWatches < idleWatches; s.isWatching {
		s.watcher.Reset(watchInterval)
	}
}

// relieve moves the work behind the current group to other goroutines, and the other calls of a group that takes long;
// requires the mutex.
func (r *run) relieve() {
	for _, later := range r.waiting {
		r.start(later.calls...)
	}
	r.waiting = nil
	if r.groupWatches > 1 {
		if r.current != nil {
			r.evaluating.policy.isSlow.Store(true)
			for _, later := range r.current.calls {
				r.start(later)
			}
			r.current.calls = nil
		}
		delete(r.runs, r)
	}
	if r.isReader {
		r.isReader = false
		go (&run{stream: r.stream, isReader: true}).work()
	}
	go r.flush()
}
