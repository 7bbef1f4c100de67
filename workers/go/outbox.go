package worker

import (
	"sync"

	"google.golang.org/protobuf/proto"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// verdictBytes bounds the size of a verdict without its outcome: tags, lengths and a 64-bit id.
const verdictBytes = 64

var allowedVerdict = &pb.Verdict_Response{Response: allowed.response}

// outbox has the unsent verdicts of a stream. The stream's mutex guards it.
type outbox struct {
	full     []sealed
	verdicts []*pb.Verdict
	bytes    int
	// notice is set until the drain notice has been sent.
	notice bool

	// unsent counts the bytes of verdicts not yet sent, including those being sent; room is signalled when it
	// decreases.
	unsent  int
	room    sync.Cond
	sending bool
}

// sealed is a complete batch.
type sealed struct {
	batch *pb.VerdictBatch
	bytes int
}

// add adds a verdict with this outcome to the next message.
func (o *outbox) add(verdict *pb.Verdict, result outcome) {
	size := verdictBytes
	switch {
	case result == allowed:
		verdict.Outcome = allowedVerdict
	case result.response != nil:
		verdict.Outcome = &pb.Verdict_Response{Response: result.response}
		size += proto.Size(result.response)
	default:
		verdict.Outcome = &pb.Verdict_Error{Error: result.err}
		size += proto.Size(result.err)
	}
	if o.bytes+size > maxMessageBytes {
		o.full = append(o.full, o.seal())
	}
	o.verdicts = append(o.verdicts, verdict)
	o.bytes += size
	o.unsent += size
}

func (o *outbox) empty() bool { return len(o.full) == 0 && len(o.verdicts) == 0 && !o.notice }

func (o *outbox) seal() sealed {
	made := sealed{&pb.VerdictBatch{Verdicts: o.verdicts, Draining: o.notice}, o.bytes}
	o.verdicts, o.bytes, o.notice = make([]*pb.Verdict, 0, cap(o.verdicts)), 0, false
	return made
}

func (o *outbox) next() sealed {
	if len(o.full) == 0 {
		return o.seal()
	}
	first := o.full[0]
	o.full = o.full[1:]
	return first
}

// flush sends all verdicts, unless another goroutine is sending, which then sends these too.
func (s *stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out.sending {
		return
	}
	s.out.sending = true
	for !s.out.empty() && !s.closed {
		next := s.out.next()
		s.mu.Unlock()
		err := s.rpc.Send(next.batch)
		s.mu.Lock()
		s.out.unsent -= next.bytes
		s.out.room.Broadcast()
		if err != nil {
			s.end(err)
		}
	}
	s.out.sending = false
	s.endIfDone()
}
