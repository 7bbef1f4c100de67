package worker

import (
	"fmt"
	"log"
	"path/filepath"
	"runtime"
)

// Set collects the policies of [Server.Replace].
type Set struct {
	log      *log.Logger
	policies []*policy
	byName   map[string]*policy
	// mistakes are errors of registrations.
	mistakes []error
}

func newSet(log *log.Logger) *Set {
	return &Set{log: log, byName: make(map[string]*policy)}
}

// Policy is like [Server.Policy].
func (s *Set) Policy(name, description string, function PolicyFunc, options ...PolicyOption) {
	s.register(&policy{name: name, description: description, function: function}, options)
}

// MutatingPolicy is like [Server.MutatingPolicy].
func (s *Set) MutatingPolicy(name, description string, function PolicyFunc, options ...PolicyOption) {
	s.register(&policy{name: name, description: description, mutating: true, function: function}, options)
}

// register is called by the method that a program calls.
func (s *Set) register(added *policy, options []PolicyOption) {
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
	if other := s.byName[added.name]; other != nil {
		s.mistakes = append(s.mistakes, fmt.Errorf(
			"%s: policy %q is already registered, at %s", added.place, added.name, other.place,
		))
	} else {
		s.byName[added.name] = added
	}
	s.policies = append(s.policies, added)
}

// err returns the first mistake.
func (s *Set) err() error {
	if len(s.mistakes) > 0 {
		return s.mistakes[0]
	}
	return nil
}
