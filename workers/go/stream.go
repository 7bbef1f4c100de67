package worker

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

const (
	// maxInFlight is of the calls of one stream: four times what the gateway sends unless told otherwise.
	maxInFlight = 4096
	// quietTime is after how long without a batch the worker ends a stream that is draining: several round
	// trips, so that a batch which crossed the notice on its way still gets its verdicts.
	quietTime = 500 * time.Millisecond
)

type batchStream = grpc.BidiStreamingServer[pb.ReviewBatch, pb.VerdictBatch]

// call is one call of a stream.
type call struct {
	stream  *stream
	id      uint64
	policy  *policy
	review  Review
	context lazyContext
	// began is when its policy was called, if that was in a turn.
	began time.Time
	// counted is set once it was held against its policy that it takes long.
	counted atomic.Bool
	// expiry is set, under the stream's mutex, for a call that was not over at once.
	expiry *time.Timer
}

// stream is the worker's side of one ReviewStream. Who runs its calls is in turn.go, how verdicts are sent
// in outbox.go.
type stream struct {
	rpc      batchStream
	policies map[string]*policy
	ctx      context.Context

	mu       sync.Mutex
	inFlight map[uint64]*call
	out      outbox
	// over is set once nothing more will be read.
	over      bool
	draining  bool
	lastBatch time.Time

	// ended is closed when the stream is; err is its status then.
	ended  chan struct{}
	closed atomic.Bool
	err    error
}

func newStream(rpc batchStream, policies map[string]*policy) *stream {
	s := &stream{
		rpc: rpc, policies: policies, ctx: rpc.Context(),
		inFlight: make(map[uint64]*call), ended: make(chan struct{}),
	}
	s.out.room.L = &s.mu
	return s
}

// serve answers calls until the gateway ends the stream or it is drained, and returns its status.
func (s *stream) serve() error {
	gone := context.AfterFunc(s.ctx, func() { s.fail(status.FromContextError(s.ctx.Err()).Err()) })
	defer gone()
	// In a goroutine of its own: policies run there, and one that blocks must not keep this method from
	// returning when the stream has ended.
	go newTurn(s).read()
	<-s.ended
	s.mu.Lock()
	left := s.inFlight
	s.inFlight = nil
	for _, call := range left {
		call.stop()
	}
	s.mu.Unlock()
	return s.err
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
	if s.over || s.closed.Load() {
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
	for s.out.unsent >= maxMessageBytes && !s.closed.Load() {
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
	if !s.closed.Swap(true) {
		s.over, s.err = true, err
		s.out.room.Broadcast()
		close(s.ended)
	}
}

// accept takes the calls of a batch into flight and returns them. What can be answered without a
// policy is.
func (s *stream) accept(batch *pb.ReviewBatch) []*call {
	arrived := time.Now()
	payloads := make([][2]string, len(batch.Payloads))
	for index, payload := range batch.Payloads {
		payloads[index] = [2]string{string(payload.AdmissionRequest), string(payload.NamespaceObject)}
	}
	cancelled := make(map[uint64]bool, len(batch.Cancelled))
	for _, id := range batch.Cancelled {
		cancelled[id] = true
	}
	calls := make([]*call, 0, len(batch.Calls))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil
	}
	s.lastBatch = arrived
	for _, asked := range batch.Calls {
		if cancelled[asked.Id] {
			continue
		}
		if _, ok := s.inFlight[asked.Id]; ok {
			text := fmt.Sprintf("call id %d is used again while its call is in flight", asked.Id)
			s.end(status.Error(codes.InvalidArgument, text))
			return nil
		}
		call, refused := s.begin(asked, payloads, arrived)
		if call == nil {
			s.out.add(asked.Id, refused)
			continue
		}
		s.inFlight[call.id] = call
		calls = append(calls, call)
	}
	for _, id := range batch.Cancelled {
		if call, ok := s.inFlight[id]; ok {
			delete(s.inFlight, id)
			call.stop()
		}
	}
	return calls
}

// begin returns the call, or why there is none.
func (s *stream) begin(asked *pb.Call, payloads [][2]string, arrived time.Time) (*call, outcome) {
	policy, ok := s.policies[asked.Policy]
	switch {
	case !ok:
		return nil, unknownPolicy(asked.Policy, s.policies)
	case int64(asked.Payload) >= int64(len(payloads)):
		text := fmt.Sprintf("the call is for payload %d, the batch has %d", asked.Payload, len(payloads))
		return nil, errorOutcome(codes.InvalidArgument, text)
	case len(s.inFlight) >= maxInFlight:
		return nil, errorOutcome(codes.ResourceExhausted, fmt.Sprintf("%d calls of this stream are in flight", maxInFlight))
	case asked.TimeoutMillis == 0:
		return nil, tooLate()
	}
	payload := payloads[asked.Payload]
	return &call{
		stream: s, id: asked.Id, policy: policy,
		review: Review{payload: payload[0], namespaceJSON: payload[1], mutating: policy.mutating},
		context: lazyContext{
			parent: s.ctx, deadline: arrived.Add(time.Duration(asked.TimeoutMillis) * time.Millisecond),
		},
	}, outcome{}
}

// settle sends the outcome with what goes out next, unless the call is settled or cancelled already. Its context
// is left alone.
func (s *stream) settle(call *call, result outcome) {
	s.mu.Lock()
	if s.inFlight[call.id] == call {
		delete(s.inFlight, call.id)
		s.out.add(call.id, result)
	}
	expiry := call.expiry
	s.mu.Unlock()
	if expiry != nil {
		expiry.Stop()
	}
}

// watch has the call answered at its deadline, whatever its policy does.
func (c *call) watch() {
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	if c.expiry == nil && c.stream.inFlight[c.id] == c {
		c.expiry = time.AfterFunc(time.Until(c.context.deadline), func() {
			c.stream.settle(c, tooLate())
			c.stream.flush()
		})
	}
}

// stop ends a call whose verdict nobody wants any more; under the stream's mutex.
func (c *call) stop() {
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.context.end()
}
