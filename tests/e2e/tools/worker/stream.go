package main

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"admission-gateway/tests/e2e/tools/policy"
	pb "admission-gateway/tests/e2e/tools/workerpb"
)

// quiet is how long nothing has to have come in before a draining stream is ended by the worker.
const quiet = 500 * time.Millisecond

type reviewStream = grpc.BidiStreamingServer[pb.ReviewBatch, pb.VerdictBatch]

// ReviewStream answers batch by batch, so that no call is ever in flight between two of them: there is nothing
// to cancel and nothing to wait for when draining.
func (w *policyWorker) ReviewStream(stream reviewStream) error {
	batches, ended := receive(stream)
	draining := w.draining.Done()
	var idle <-chan time.Time
	for {
		select {
		case batch := <-batches:
			if answers := verdicts(batch); len(answers.Verdicts) > 0 {
				if err := stream.Send(answers); err != nil {
					return err
				}
			}
			if idle != nil {
				idle = time.After(quiet)
			}
		case <-draining:
			if err := stream.Send(&pb.VerdictBatch{Draining: true}); err != nil {
				return err
			}
			draining, idle = nil, time.After(quiet)
		case <-idle:
			return nil
		case err := <-ended:
			return err
		}
	}
}

// receive passes on what the gateway sends, and then nil at its half-close or the error that ended the stream.
func receive(stream reviewStream) (<-chan *pb.ReviewBatch, <-chan error) {
	batches, ended := make(chan *pb.ReviewBatch), make(chan error, 1)
	go func() {
		for {
			batch, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if batch == nil {
				ended <- err
				return
			}
			select {
			case batches <- batch:
			case <-stream.Context().Done():
				ended <- context.Cause(stream.Context())
				return
			}
		}
	}()
	return batches, ended
}

// verdicts answers all calls of a batch in one message. Each payload is decoded once, however many calls
// refer to it.
func verdicts(batch *pb.ReviewBatch) *pb.VerdictBatch {
	requests := make([]*policy.Request, len(batch.Payloads))
	problems := make([]error, len(batch.Payloads))
	for i, payload := range batch.Payloads {
		requests[i], problems[i] = policy.Decode(payload.AdmissionRequest)
	}
	cancelled := make(map[uint64]bool, len(batch.Cancelled))
	for _, id := range batch.Cancelled {
		cancelled[id] = true
	}
	answers := &pb.VerdictBatch{Verdicts: make([]*pb.Verdict, 0, len(batch.Calls))}
	for _, call := range batch.Calls {
		if cancelled[call.Id] {
			continue
		}
		verdict := &pb.Verdict{Id: call.Id}
		answers.Verdicts = append(answers.Verdicts, verdict)
		asked, known := policy.All[call.Policy]
		switch {
		case !known:
			refuse(verdict, codes.NotFound, unknown(call.Policy))
		case int(call.Payload) >= len(requests):
			refuse(verdict, codes.InvalidArgument, "the call points at a payload that the batch does not have")
		case problems[call.Payload] != nil:
			refuse(verdict, codes.InvalidArgument, problems[call.Payload].Error())
		case call.TimeoutMillis == 0:
			refuse(verdict, codes.DeadlineExceeded, "no time was left when the call came")
		default:
			verdict.Outcome = &pb.Verdict_Response{Response: evaluate(asked, requests[call.Payload])}
		}
	}
	return answers
}

func refuse(verdict *pb.Verdict, code codes.Code, message string) {
	verdict.Outcome = &pb.Verdict_Error{Error: &pb.Error{Code: int32(code), Message: message}}
}
