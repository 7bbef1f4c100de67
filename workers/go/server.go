package worker

import (
	"context"
	"errors"
	"log"
	"os"
	"sync"
)

// DefaultListen is the default listening address.
const DefaultListen = "127.0.0.1:50051"

// Server serves policies to gateways. Register them with [Server.Policy] and [Server.MutatingPolicy]; then
// [Server.Main] runs a program, or [Server.Start] and [Server.Stop] a server in an existing program.
type Server struct {
	log *log.Logger
	// additions are what a program adds to Main.
	additions additions

	mu sync.Mutex
	// set has the policies. Start returns its mistakes.
	set *Set
	// isReplaced is set once Replace has made the set, which may be empty then.
	isReplaced bool
	serving    *serving
}

// NewServer returns a server without policies that logs to stderr.
func NewServer() *Server {
	logger := log.New(os.Stderr, "", 0)
	return &Server{log: logger, set: newSet(logger)}
}

// LogTo sets the logger of failures, whose records have their time. Call it before registering policies.
func (s *Server) LogTo(logger *log.Logger) { s.log, s.set.log = logger, logger }

// Policy registers a policy that allows or denies. The description is one line for people, shown by
// ListPolicies. An error, such as a duplicate name, is returned by [Server.Start] and [Server.Main].
func (s *Server) Policy(name, description string, function PolicyFunc, options ...PolicyOption) {
	s.set.register(&policy{name: name, description: description, function: function}, options)
}

// MutatingPolicy registers a policy that may also change the object, and is otherwise like [Server.Policy].
// It changes what [Review.Object] returns, or uses [Review.SetObject], [Review.Update] or [Review.SetPatch].
// It should be idempotent: the API server may reinvoke it after changes by others.
func (s *Server) MutatingPolicy(name, description string, function PolicyFunc, options ...PolicyOption) {
	s.set.register(&policy{name: name, description: description, mutating: true, function: function}, options)
}

// Replace serves the policies that fill registers instead of all policies before, also while the server is started. A
// call in flight ends with the policy that it began with. It returns the first error of a registration, and changes
// nothing then. fill may register none: then every call is answered NOT_FOUND.
func (s *Server) Replace(fill func(*Set)) error {
	made := newSet(s.log)
	fill(made)
	if err := made.err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set, s.isReplaced = made, true
	if s.serving != nil {
		s.serving.replace(made)
	}
	return nil
}

// Options are the options of [Server.Start].
type Options struct {
	// Listen has addresses: HOST:PORT, [IPV6]:PORT or unix:PATH. Port 0: any free port. Default: DefaultListen.
	Listen []string
	// CertFile and KeyFile are PEM files for TLS on all addresses.
	CertFile, KeyFile string
	// ClientCAFile requires client certificates of this CA.
	ClientCAFile string
	// MetricsListen is the HOST:PORT of the metrics, over plain HTTP at /metrics; empty: none.
	MetricsListen string
}

// Start serves until [Server.Stop] and returns the addresses, with the chosen port instead of 0.
func (s *Server) Start(options Options) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving != nil {
		return nil, errors.New("the server is started already")
	}
	if err := s.set.err(); err != nil {
		return nil, err
	}
	if len(s.set.policies) == 0 && !s.isReplaced {
		return nil, errors.New(`no policy is registered: use server.Policy("name", ...)`)
	}
	started := newServing(s.set)
	if err := started.start(options); err != nil {
		return nil, err
	}
	s.serving = started
	return started.addresses, nil
}

// count returns the number of policies.
func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.set.policies)
}

// MetricsAddress returns the HOST:PORT of the metrics; empty if there are none.
func (s *Server) MetricsAddress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving == nil || s.serving.metrics == nil {
		return ""
	}
	return s.serving.metrics.address
}

// Stop drains and stops: health becomes NOT_SERVING, streams get the drain notice, and calls in flight are
// answered. When ctx is done, remaining calls are aborted, and Stop returns the error of ctx.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	stopping := s.serving
	s.serving = nil
	s.mu.Unlock()
	if stopping == nil {
		return nil
	}
	return stopping.stop(ctx)
}
