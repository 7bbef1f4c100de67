package worker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// maxInFlight is the limit of calls of one stream: four times the default maxInFlight of the gateway.
	maxInFlight = 4096
	// maxRunning is the limit of running policies, including those of cancelled calls: a policy that never returns
	// must not exhaust memory.
	maxRunning = 2 * maxInFlight
	// quietTime is the time without a batch after which the worker ends a draining stream: several round trips,
	// for batches that the gateway sent before it received the drain notice.
	quietTime = 500 * time.Millisecond
)

type batchStream = grpc.BidiStreamingServer[pb.ReviewBatch, pb.VerdictBatch]

var tooManyCalls = errorOutcome(codes.ResourceExhausted, fmt.Sprintf("%d calls of this stream are in flight", maxInFlight))

// stream is the server side of one ReviewStream. outbox.go sends the verdicts.
type stream struct {
	rpc    batchStream
	served *atomic.Pointer[Set]
	of     *client
	limits *limits

	mu       sync.Mutex
	inFlight map[uint64]*call
	// running counts running policies, including those whose call was cancelled or answered at its deadline.
	running int
	// runs evaluate calls; those that only wait for a policy that takes long are left out.
	runs map[*run]bool
	// watcher calls watch while runs evaluate, and expiry expires calls at the earliest of their deadlines, or earlier.
	watcher    *time.Timer
	isWatching bool
	// idleWatches counts the watches since a run began.
	idleWatches int
	expiry      *time.Timer
	expires     time.Time
	out         outbox
	// over is set when no more messages will be read.
	over      bool
	draining  bool
	lastBatch time.Time
	// parameters are by id, and parameterBytes is the length of all.
	parameters     map[uint32]*kept
	parameterBytes int
	// received is the length of the payloads and parameters of the calls in flight.
	received int
	// parts are what the limits know of parameterBytes and received.
	parameterPart, receivedPart *part

	// ended is closed at the end of the stream; err is then its status.
	ended  chan struct{}
	closed bool
	err    error
}

func newStream(rpc batchStream, served *atomic.Pointer[Set], limits *limits) *stream {
	s := &stream{
		rpc: rpc, served: served, of: clientIn(rpc.Context()), limits: limits,
		inFlight: make(map[uint64]*call), runs: make(map[*run]bool), ended: make(chan struct{}),
	}
	s.parameterPart, s.receivedPart = &part{of: s.of, end: s.fail}, &part{of: s.of, end: s.fail}
	s.out.room.L = &s.mu
	s.watcher, s.expiry = time.AfterFunc(time.Hour, s.watch), time.AfterFunc(time.Hour, s.expire)
	s.watcher.Stop()
	s.expiry.Stop()
	return s
}

// serve answers calls until the gateway ends the stream or it is drained, and returns its status.
func (s *stream) serve() error {
	ctx := s.rpc.Context()
	gone := context.AfterFunc(ctx, func() { s.fail(cmp.Or(excessRPC(ctx), status.FromContextError(ctx.Err()).Err())) })
	defer gone()
	if opened, ok := ctx.Value(openedKey{}).(*part); ok {
		// When its context is cancelled, a stream that is read or written ends with the status Canceled.
		s.limits.rpcs.endBy(opened, s.fail)
	}
	// In a separate goroutine, for which a drain need not wait; the last reader ends with this method.
	go (&run{stream: s, isReader: true}).work()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher.Stop()
	s.expiry.Stop()
	for _, call := range s.inFlight {
		s.leave(call)
		call.ctx.cancel()
		call.policy.meter.cancel(call.started)
	}
	s.parameters = nil
	s.limits.parameters.set(s.parameterPart, 0)
	s.limits.received.set(s.receivedPart, s.received)
	return s.err
}

// read waits for a batch, whose calls this run then evaluates; false at the end of the stream.
func (r *run) read() bool {
	batch, err := r.receive()
	if err != nil {
		r.readEnded(err)
		return false
	}
	r.accept(batch)
	return true
}

// drain sends the drain notice; the stream ends when no call is in flight, or after quietTime.
func (s *stream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.over {
		return
	}
	s.draining, s.out.notice = true, true
	s.lastBatch = time.Now()
	time.AfterFunc(quietTime, s.endIfQuiet)
	go s.flush()
}

func (s *stream) endIfQuiet() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.closed {
		return
	}
	if idle := time.Since(s.lastBatch); len(s.inFlight) > 0 || idle < quietTime {
		time.AfterFunc(max(quietTime-idle, quietTime/10), s.endIfQuiet)
		return
	}
	s.over = true
	s.endIfDone()
}

// receive waits for room for more verdicts, and then for a batch.
func (s *stream) receive() (*pb.ReviewBatch, error) {
	s.mu.Lock()
	for s.out.unsent >= maxMessageBytes && !s.closed {
		s.out.room.Wait()
	}
	s.mu.Unlock()
	batch := &pb.ReviewBatch{}
	message := &incoming{message: batch}
	if err := s.rpc.RecvMsg(message); err != nil {
		return nil, err
	}
	return batch, message.problem()
}

// readEnded records the end of reading.
func (s *stream) readEnded(err error) {
	if err != io.EOF {
		s.fail(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.endIfDone()
}

// fail ends the stream with this status.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(err)
}

// endIfDone ends the stream if no work is left; requires the mutex.
func (s *stream) endIfDone() {
	if s.over && len(s.inFlight) == 0 && !s.out.sending && s.out.empty() {
		s.end(nil)
	}
}

func (s *stream) end(err error) {
	if !s.closed {
		s.closed, s.over, s.err = true, true, err
		s.out.room.Broadcast()
		close(s.ended)
	}
}

// earlier is a call of the batch that is being accepted. The call is nil if it was refused.
type earlier struct {
	call        *call
	payload     uint32
	isCancelled bool
}

// accept lets the calls of a batch wait, or answers calls that need no policy.
func (r *run) accept(batch *pb.ReviewBatch) {
	arrived := time.Now()
	cancelled := make(map[uint64]bool, len(batch.Cancelled))
	for _, id := range batch.Cancelled {
		cancelled[id] = true
	}
	var calls map[uint64]earlier
	if slices.ContainsFunc(batch.Calls, func(asked *pb.Call) bool { return asked.After != 0 }) {
		calls = make(map[uint64]earlier, len(batch.Calls))
	}
	groups := make([]*group, len(batch.Payloads))
	sent := make([]*kept, len(batch.Payloads))
	// Of slow policies.
	var apart []*group
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.lastBatch = arrived
	if problem := r.takeParameters(batch); problem != "" {
		r.end(status.Error(codes.InvalidArgument, problem))
		return
	}
	served := r.served.Load()
	for index, asked := range batch.Calls {
		after, isKnown := calls[asked.After]
		isKnown = isKnown && asked.After != 0 && after.payload == asked.Payload
		accepted := earlier{payload: asked.Payload, isCancelled: cancelled[asked.Id] || isKnown && after.isCancelled}
		if !accepted.isCancelled {
			if _, ok := r.inFlight[asked.Id]; ok {
				text := fmt.Sprintf("call id %d is used again while its call is in flight", asked.Id)
				r.end(status.Error(codes.InvalidArgument, text))
				return
			}
			problem, ok := r.problem(asked, served, len(batch.Payloads), isKnown)
			if index >= maxInFlight {
				problem, ok = tooManyCalls, true
			}
			if ok {
				r.out.add(&pb.Verdict{Id: asked.Id, Chained: isKnown}, problem)
			} else {
				payload := batch.Payloads[asked.Payload]
				if sent[asked.Payload] == nil {
					sent[asked.Payload] = &kept{bytes: len(payload.AdmissionRequest) + len(payload.NamespaceObject)}
				}
				accepted.call = r.begin(asked, served.byName[asked.Policy], isKnown, sent[asked.Payload])
				if isKnown && after.call != nil {
					after.call.next = append(after.call.next, accepted.call)
				} else {
					into := groups[asked.Payload]
					switch {
					case accepted.call.policy.isSlow.Load():
						into = r.newGroup(payload)
						apart = append(apart, into)
					case into == nil:
						into = r.newGroup(payload)
						groups[asked.Payload] = into
						r.waiting = append(r.waiting, into)
					}
					r.prepare(accepted.call, into.payload, arrived)
					into.calls = append(into.calls, accepted.call)
				}
			}
		}
		if calls != nil {
			calls[asked.Id] = accepted
		}
	}
	for _, waiting := range r.waiting {
		waiting.share()
	}
	for _, slow := range apart {
		r.start(slow.calls...)
	}
	for _, id := range batch.Cancelled {
		if call, ok := r.inFlight[id]; ok {
			r.cancel(call)
		}
	}
	r.limits.received.set(r.receivedPart, r.received)
}

// problem returns the outcome of a call that is rejected; requires the mutex.
func (s *stream) problem(asked *pb.Call, served *Set, payloads int, isKnown bool) (problem outcome, ok bool) {
	switch {
	case served.byName[asked.Policy] == nil:
		return unknownPolicy(asked.Policy, served.byName), true
	case int64(asked.Payload) >= int64(payloads):
		text := fmt.Sprintf("the call is for payload %d, the batch has %d", asked.Payload, payloads)
		return errorOutcome(codes.InvalidArgument, text), true
	case asked.After != 0 && !isKnown:
		text := fmt.Sprintf("no earlier call of the batch has the id %d and the same payload", asked.After)
		return errorOutcome(codes.InvalidArgument, text), true
	case asked.Parameters != 0 && !s.hasParameters(asked.Parameters):
		return errorOutcome(codes.InvalidArgument, "the call has an id of parameters that this stream has not had"), true
	case len(s.inFlight) >= maxInFlight || s.running >= maxRunning:
		return tooManyCalls, true
	case asked.TimeoutMillis == 0:
		return tooLate(), true
	}
	return outcome{}, false
}

// begin adds a call in flight; requires the mutex.
func (s *stream) begin(asked *pb.Call, policy *policy, isChained bool, sent *kept) *call {
	begun := &call{
		id: asked.Id, policy: policy, isChained: isChained,
		timeout: time.Duration(asked.TimeoutMillis) * time.Millisecond, traceparent: asked.Traceparent,
		parameters: s.parameters[asked.Parameters], sent: sent,
	}
	s.inFlight[begun.id] = begun
	s.received += begun.parameters.use() + begun.sent.use()
	return begun
}

// drop lets go of what a call has kept; requires the mutex.
func (s *stream) drop(ended *call) {
	s.received -= ended.parameters.leave() + ended.sent.leave()
	ended.parameters, ended.sent = nil, nil
}

// kept is a payload or a value of parameters, which counts while calls use it.
type kept struct {
	json  []byte
	bytes int
	uses  int
}

func (k *kept) text() []byte {
	if k == nil {
		return nil
	}
	return k.json
}

// use counts a use, and returns the bytes that are now kept.
func (k *kept) use() int {
	if k == nil {
		return 0
	}
	if k.uses++; k.uses > 1 {
		return 0
	}
	return k.bytes
}

// leave ends a use, and returns the bytes that are kept no longer.
func (k *kept) leave() int {
	if k == nil {
		return 0
	}
	if k.uses--; k.uses > 0 {
		return 0
	}
	return k.bytes
}

// cancel ends a call and those after it without verdicts; requires the mutex.
func (s *stream) cancel(cancelled *call) {
	s.leave(cancelled)
	cancelled.ctx.cancel()
	cancelled.policy.meter.cancel(cancelled.started)
	for _, later := range cancelled.next {
		if s.inFlight[later.id] == later {
			s.cancel(later)
		}
	}
}

// expireAt sees to it that expire is called at this time, or earlier; requires the mutex.
func (s *stream) expireAt(deadline time.Time) {
	if s.expires.IsZero() || deadline.Before(s.expires) {
		s.expires = deadline
		s.expiry.Reset(time.Until(deadline))
	}
}

// expire answers the calls whose deadline has passed, also those whose policies run still.
func (s *stream) expire() {
	s.mu.Lock()
	s.expires = time.Time{}
	now := time.Now()
	for _, late := range s.inFlight {
		switch {
		case late.payload == nil:
		case now.Before(late.ctx.deadline):
			s.expireAt(late.ctx.deadline)
		default:
			s.settle(late, tooLate())
			s.start(s.release(late, late.payload.fresh()).calls...)
		}
	}
	s.mu.Unlock()
	s.flush()
}
