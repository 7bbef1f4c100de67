package worker

import (
	"sync"

	"google.golang.org/protobuf/proto"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// verdictBytes bounds what a verdict takes beside its outcome: tags, lengths and a 64-bit id.
const verdictBytes = 64

var allowedVerdict = &pb.Verdict_Response{Response: allowed.response}

// outbox has the verdicts of a stream that are still to be sent. All of it is under the stream's mutex.
type outbox struct {
	full     []sealed
	verdicts []*pb.Verdict
	bytes    int
	// notice says that the gateway is still to be told of the drain.
	notice bool

	// unsent counts the bytes of all verdicts that are not sent, also those being sent; room is signalled when
	// it goes down.
	unsent  int
	room    sync.Cond
	sending bool
}

// sealed is a batch to which nothing is added any more.
type sealed struct {
	batch *pb.VerdictBatch
	bytes int
}

// add puts a verdict into the message that goes out next.
func (o *outbox) add(id uint64, result outcome) {
	verdict, size := &pb.Verdict{Id: id}, verdictBytes
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

// flush sends all verdicts there are, unless another goroutine is at it: that one then sends these too.
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
