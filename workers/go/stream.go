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

// call is one call of a stream.
type call struct {
	id     uint64
	cancel context.CancelFunc
	// disarm cancels the answer at the deadline.
	disarm func() bool
}

// stream is the server side of one ReviewStream. outbox.go sends the verdicts.
type stream struct {
	rpc      batchStream
	policies map[string]*policy

	mu       sync.Mutex
	inFlight map[uint64]*call
	// running counts running policies, including those whose call was cancelled or answered at its deadline.
	running int
	out     outbox
	// over is set when no more messages will be read.
	over      bool
	draining  bool
	lastBatch time.Time

	// ended is closed at the end of the stream; err is then its status.
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
	// In a separate goroutine, for which a drain need not wait; it ends with this method.
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

// accept runs the calls of a batch, each in a separate goroutine, or answers calls that need no policy.
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
		// In another goroutine, because the next batch may cancel calls of a gateway that reads slowly.
		go s.flush()
	}
}

// begin adds a call in flight, or returns the outcome of a rejected call; requires the mutex.
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

// settle sends the outcome, unless the call is already answered or cancelled.
func (s *stream) settle(call *call, result outcome) {
	s.mu.Lock()
	waited := s.inFlight[call.id] == call
	if waited {
		delete(s.inFlight, call.id)
		s.out.add(call.id, result)
	}
	s.mu.Unlock()
	if waited {
		// Let goroutines that end now run first, so that one message has all verdicts.
		runtime.Gosched()
		s.flush()
	}
}

// end cancels the context of the policy, if it still runs.
func (c *call) end() {
	c.disarm()
	c.cancel()
}
