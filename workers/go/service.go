package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "admission-gateway.io/worker/internal/workerpb"
)

// maxUnaryInFlight is the same limit as for a stream.
const maxUnaryInFlight = 4096

// service has the methods of the PolicyWorker service.
type service struct {
	pb.UnimplementedPolicyWorkerServer
	served atomic.Pointer[Set]
	limits *limits

	mu       sync.Mutex
	unary    int
	streams  map[*stream]bool
	draining bool
	// idle is signalled when no call and no stream is open.
	idle chan struct{}
}

func newService(served *Set) *service {
	s := &service{limits: newLimits(), streams: make(map[*stream]bool), idle: make(chan struct{}, 1)}
	s.served.Store(served)
	return s
}

// ListPolicies answers in the order of registration.
func (s *service) ListPolicies(context.Context, *pb.ListPoliciesRequest) (*pb.ListPoliciesResponse, error) {
	response := &pb.ListPoliciesResponse{}
	for _, served := range s.served.Load().policies {
		response.Policies = append(response.Policies, &pb.Policy{
			Name: served.name, Description: served.description, Mutating: served.mutating, Version: served.version,
			ParametersSchema: served.schema,
		})
	}
	return response, nil
}

// CheckParameters prepares the parameters as a call would, in a separate goroutine, which the policy may end.
func (s *service) CheckParameters(
	_ context.Context, request *pb.CheckParametersRequest,
) (*pb.CheckParametersResponse, error) {
	full := s.enter(nil)
	defer s.leave(nil)
	policy, problem, ok := s.find(request.Policy, full)
	if !ok {
		return nil, problem.status()
	}
	checked := make(chan string, 1)
	go func() {
		reason := exited.err.Message
		defer func() { checked <- reason }()
		reason = policy.checkValue(request.Parameters)
	}()
	return &pb.CheckParametersResponse{Problem: errorOutcome(codes.InvalidArgument, <-checked).err.Message}, nil
}

// Review runs the policy in a separate goroutine, which the policy may end.
func (s *service) Review(ctx context.Context, request *pb.ReviewRequest) (*pb.ReviewResponse, error) {
	full := s.enter(nil)
	defer s.leave(nil)
	result := s.outcome(ctx, request, full)
	if result.err != nil {
		return nil, result.status()
	}
	return result.response, nil
}

// find returns the policy of a unary call, or else the outcome of the call.
func (s *service) find(name string, full bool) (found *policy, problem outcome, ok bool) {
	served := s.served.Load().byName
	switch found = served[name]; {
	case found == nil:
		return nil, unknownPolicy(name, served), false
	case full:
		return nil, errorOutcome(codes.ResourceExhausted, fmt.Sprintf("%d calls are in flight", maxUnaryInFlight)), false
	}
	return found, outcome{}, true
}

func (s *service) outcome(ctx context.Context, request *pb.ReviewRequest, full bool) outcome {
	policy, problem, ok := s.find(request.Policy, full)
	if !ok {
		return problem
	}
	if stopped, ok := stoppedOutcome(ctx); ok {
		return stopped
	}
	if len(request.Parameters) > maxParametersBytes {
		return tooManyParameters(len(request.Parameters))
	}
	of := clientIn(ctx)
	shared := &payload{
		requestJSON: request.AdmissionRequest, namespaceJSON: request.NamespaceObject, of: of, limits: s.limits,
	}
	answered := make(chan outcome, 1)
	received := &part{of: of, end: func(err error) {
		select {
		case answered <- errorOutcome(status.Code(err), status.Convert(err).Message()):
		default:
		}
	}}
	s.limits.received.set(received, shared.bytes()+len(request.Parameters))
	defer s.limits.received.set(received, 0)
	if stopped, ok := s.waitFor(ctx, of, shared.bytes(), answered); ok {
		return stopped
	}
	review := &Review{payload: shared, mutating: policy.mutating, traceparent: traceparentIn(ctx), parametersJSON: request.Parameters}
	started := policy.meter.begin()
	go policy.answer(ctx, review, func(result outcome) {
		s.limits.evaluated.give(of, shared.bytes())
		select {
		case answered <- result:
		default:
		}
	})
	result := <-answered
	policy.meter.end(started, result)
	return result
}

// waitFor waits for the turn of an evaluation of so many bytes, or returns the outcome of a call that ends before it.
func (s *service) waitFor(ctx context.Context, of *client, bytes int, answered <-chan outcome) (ended outcome, ok bool) {
	waiting := s.limits.evaluated.ask(of, bytes)
	if waiting == nil {
		return outcome{}, false
	}
	select {
	case <-waiting.ready:
		return outcome{}, false
	case ended = <-answered:
	case <-ctx.Done():
		ended, _ = stoppedOutcome(ctx)
	}
	if s.limits.evaluated.giveUp(waiting); waiting.isTurn {
		s.limits.evaluated.give(of, bytes)
	}
	return ended, true
}

// traceparentIn returns the metadata of a call; empty if there is none.
func traceparentIn(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(values) > 0 {
		return values[0]
	}
	return ""
}

// ReviewStream answers one stream.
func (s *service) ReviewStream(rpc batchStream) error {
	opened := newStream(rpc, &s.served, s.limits)
	s.enter(opened)
	defer s.leave(opened)
	return opened.serve()
}

// enter counts a call, or a stream that was opened, and returns whether there are too many calls.
func (s *service) enter(opened *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened == nil {
		s.unary++
		return s.unary > maxUnaryInFlight
	}
	s.streams[opened] = true
	if s.draining {
		opened.drain()
	}
	return false
}

func (s *service) leave(opened *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened == nil {
		s.unary--
	} else {
		delete(s.streams, opened)
	}
	s.signalIdle()
}

func (s *service) signalIdle() {
	if s.draining && s.unary == 0 && len(s.streams) == 0 {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// drain sends the drain notice on all open and later streams.
func (s *service) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for opened := range s.streams {
		opened.drain()
	}
	s.signalIdle()
}
