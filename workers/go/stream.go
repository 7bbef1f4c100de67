package worker

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// maxInFlight is of the calls of one stream: four times what the gateway sends unless told otherwise.
	maxInFlight = 4096
	// maxRunning is of policies at work, those included that go on when nobody waits for them any more: one that
	// never returns is not to eat up all memory.
	maxRunning = 2 * maxInFlight
	// quietTime is after how long without a batch the worker ends a stream that is draining: several round
	// trips, so that a batch which crossed the notice on its way still gets its verdicts.
	quietTime = 500 * time.Millisecond
)

type batchStream = grpc.BidiStreamingServer[pb.ReviewBatch, pb.VerdictBatch]

// call is one call of a stream.
type call struct {
	id     uint64
	cancel context.CancelFunc
	// disarm has the call not answered at its deadline any more.
	disarm func() bool
}

// stream is the worker's side of one ReviewStream. How verdicts are sent is in outbox.go.
type stream struct {
	rpc      batchStream
	policies map[string]*policy

	mu       sync.Mutex
	inFlight map[uint64]*call
	// running counts policies that have not come back, also those whose call was cancelled or answered at its
	// deadline.
	running int
	out     outbox
	// over is set once nothing more will be read.
	over      bool
	draining  bool
	lastBatch time.Time

	// ended is closed when the stream is; err is its status then.
	ended  chan struct{}
	closed bool
	err    error
}

func newStream(rpc batchStream, policies map[string]*policy) *stream {
	s := &stream{
		rpc: rpc, policies: policies, inFlight: make(map[uint64]*call), ended: make(chan struct{}),
	}
	s.out.room.L = &s.mu
	return s
}

// serve answers calls until the gateway ends the stream or it is drained, and returns its status.
func (s *stream) serve() error {
	ctx := s.rpc.Context()
	gone := context.AfterFunc(ctx, func() { s.fail(status.FromContextError(ctx.Err()).Err()) })
	defer gone()
	// In a goroutine of its own, which a drain need not wait for; it returns when this method has.
	go s.read()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range s.inFlight {
		call.end()
	}
	clear(s.inFlight)
	return s.err
}

func (s *stream) read() {
	for {
		batch, err := s.receive()
		if err != nil {
			s.readEnded(err)
			return
		}
		s.accept(batch)
	}
}

// drain tells the gateway to send nothing new; the stream ends when it is done, or quiet.
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

// receive waits until there is room for more verdicts, and then for a batch.
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

// readEnded notes why there is nothing more to read.
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

// endIfDone ends the stream where nothing is left to do; under the mutex.
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

// accept has the calls of a batch run, each in a goroutine of its own. What can be answered without a policy is.
func (s *stream) accept(batch *pb.ReviewBatch) {
	arrived := time.Now()
	cancelled := make(map[uint64]bool, len(batch.Cancelled))
	for _, id := range batch.Cancelled {
		cancelled[id] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.lastBatch = arrived
	refused := false
	for _, asked := range batch.Calls {
		if cancelled[asked.Id] {
			continue
		}
		if _, ok := s.inFlight[asked.Id]; ok {
			text := fmt.Sprintf("call id %d is used again while its call is in flight", asked.Id)
			s.end(status.Error(codes.InvalidArgument, text))
			return
		}
		if problem, ok := s.begin(asked, batch.Payloads, arrived); !ok {
			s.out.add(asked.Id, problem)
			refused = true
		}
	}
	for _, id := range batch.Cancelled {
		if call, ok := s.inFlight[id]; ok {
			delete(s.inFlight, id)
			call.end()
		}
	}
	if refused {
		// Elsewhere, since the next batch may cancel calls of a gateway that is slow to take verdicts.
		go s.flush()
	}
}

// begin takes a call into flight, or returns why it does not; under the mutex.
func (s *stream) begin(asked *pb.Call, payloads []*pb.Payload, arrived time.Time) (problem outcome, ok bool) {
	policy, served := s.policies[asked.Policy]
	switch {
	case !served:
		return unknownPolicy(asked.Policy, s.policies), false
	case int64(asked.Payload) >= int64(len(payloads)):
		text := fmt.Sprintf("the call is for payload %d, the batch has %d", asked.Payload, len(payloads))
		return errorOutcome(codes.InvalidArgument, text), false
	case len(s.inFlight) >= maxInFlight || s.running >= maxRunning:
		return errorOutcome(codes.ResourceExhausted, fmt.Sprintf("%d calls of this stream are in flight", maxInFlight)), false
	case asked.TimeoutMillis == 0:
		return tooLate(), false
	}
	payload := payloads[asked.Payload]
	review := &Review{
		payload: payload.AdmissionRequest, namespaceJSON: payload.NamespaceObject, mutating: policy.mutating,
	}
	deadline := arrived.Add(time.Duration(asked.TimeoutMillis) * time.Millisecond)
	ctx, cancel := context.WithDeadline(s.rpc.Context(), deadline)
	begun := &call{id: asked.Id, cancel: cancel}
	begun.disarm = context.AfterFunc(ctx, func() { s.settle(begun, tooLate()) })
	s.inFlight[begun.id] = begun
	s.running++
	go policy.answer(ctx, review, func(result outcome) {
		begun.end()
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
		s.settle(begun, result)
	})
	return outcome{}, true
}

// settle sends the outcome, unless the call is settled or cancelled already.
func (s *stream) settle(call *call, result outcome) {
	s.mu.Lock()
	waited := s.inFlight[call.id] == call
	if waited {
		delete(s.inFlight, call.id)
		s.out.add(call.id, result)
	}
	s.mu.Unlock()
	if waited {
		// Those that end at the same time go first, so that one message has the verdicts of all.
		runtime.Gosched()
		s.flush()
	}
}

// end tells the policy, if it still runs, that its answer is no longer wanted.
func (c *call) end() {
	c.disarm()
	c.cancel()
}
