package worker

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// DefaultListen is the default listening address.
const DefaultListen = "127.0.0.1:50051"

// Server serves policies to gateways. Register them with [Server.Policy] and [Server.MutatingPolicy]; then
// [Server.Main] runs a program, or [Server.Start] and [Server.Stop] a server in an existing program.
type Server struct {
	log      *log.Logger
	policies []*policy
	// errors of registrations, which Start returns.
	mistakes []error

	mu      sync.Mutex
	serving *serving
}

// NewServer returns a server without policies that logs to stderr.
func NewServer() *Server {
	return &Server{log: log.New(os.Stderr, "", 0)}
}

// LogTo sets the logger of failures, whose records have their time. Call it before registering policies.
func (s *Server) LogTo(logger *log.Logger) { s.log = logger }

// Policy registers a policy that allows or denies. The description is one line for people, shown by
// ListPolicies. An error, such as a duplicate name, is returned by [Server.Start] and [Server.Main].
func (s *Server) Policy(name, description string, function PolicyFunc, options ...PolicyOption) {
	s.register(&policy{name: name, description: description, function: function}, options)
}

// MutatingPolicy registers a policy that may also change the object, and is otherwise like [Server.Policy].
// It changes what [Review.Object] returns, or uses [Review.SetObject], [Review.Update] or [Review.SetPatch].
// It should be idempotent: the API server may reinvoke it after changes by others.
func (s *Server) MutatingPolicy(name, description string, function PolicyFunc, options ...PolicyOption) {
	s.register(&policy{name: name, description: description, mutating: true, function: function}, options)
}

func (s *Server) register(added *policy, options []PolicyOption) {
	_, file, line, _ := runtime.Caller(2)
	added.place = fmt.Sprintf("%s:%d", filepath.Base(file), line)
	for _, option := range options {
		option(added)
	}
	added.log = s.log
	if err := checkName(added.name); err != nil {
		s.mistakes = append(s.mistakes, fmt.Errorf("%s: %w", added.place, err))
	}
	if added.function == nil {
		s.mistakes = append(s.mistakes, fmt.Errorf("%s: policy %q has no function", added.place, added.name))
	}
	if err := added.checkParameters(); err != nil {
		s.mistakes = append(s.mistakes, fmt.Errorf("%s: %w", added.place, err))
	}
	for _, other := range s.policies {
		if other.name == added.name {
			s.mistakes = append(s.mistakes, fmt.Errorf(
				"%s: policy %q is already registered, at %s", added.place, added.name, other.place,
			))
		}
	}
	s.policies = append(s.policies, added)
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
	if len(s.mistakes) > 0 {
		return nil, s.mistakes[0]
	}
	if len(s.policies) == 0 {
		return nil, errors.New(`no policy is registered: use server.Policy("name", ...)`)
	}
	started := newServing(s.policies)
	if err := started.start(options); err != nil {
		return nil, err
	}
	s.serving = started
	return started.addresses, nil
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
