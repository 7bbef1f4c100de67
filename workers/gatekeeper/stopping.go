package main

import (
	"context"
	"sync"

	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/schema"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
)

// running has the contexts of the objects that are being mutated. The system applies N mutators up to N+1 times without
// a look at its context (gatekeeper:pkg/mutation/system.go), so the mutators look at it.
type running struct {
	// contexts has a context.Context for each *mutationtypes.Mutable.
	contexts sync.Map
}

// stopping returns a mutator that fails as soon as the context of the object is done.
func (r *running) stopping(mutator mutationtypes.Mutator) mutationtypes.Mutator {
	if withSchema, ok := mutator.(schema.MutatorWithSchema); ok {
		return &stoppingWithSchema{MutatorWithSchema: withSchema, running: r}
	}
	return &stopping{Mutator: mutator, running: r}
}

func (r *running) err(object *mutationtypes.Mutable) error {
	if ctx, ok := r.contexts.Load(object); ok {
		return ctx.(context.Context).Err()
	}
	return nil
}

func (r *running) matches(mutator mutationtypes.Mutator, object *mutationtypes.Mutable) (bool, error) {
	if err := r.err(object); err != nil {
		return false, err
	}
	return mutator.Matches(object)
}

// stopping is a mutator that implies no schema (AssignMetadata).
type stopping struct {
	mutationtypes.Mutator
	running *running
}

func (s *stopping) Matches(object *mutationtypes.Mutable) (bool, error) {
	return s.running.matches(s.Mutator, object)
}

func (s *stopping) HasDiff(other mutationtypes.Mutator) bool { return s.Mutator.HasDiff(inner(other)) }

func (s *stopping) DeepCopy() mutationtypes.Mutator { return s.running.stopping(s.Mutator.DeepCopy()) }

// stoppingWithSchema is a mutator that implies a schema.
type stoppingWithSchema struct {
	schema.MutatorWithSchema
	running *running
}

func (s *stoppingWithSchema) Matches(object *mutationtypes.Mutable) (bool, error) {
	return s.running.matches(s.MutatorWithSchema, object)
}

func (s *stoppingWithSchema) HasDiff(other mutationtypes.Mutator) bool {
	return s.MutatorWithSchema.HasDiff(inner(other))
}

func (s *stoppingWithSchema) DeepCopy() mutationtypes.Mutator {
	return s.running.stopping(s.MutatorWithSchema.DeepCopy())
}

// inner returns the engine's own mutator: each compares itself only with its own type.
func inner(mutator mutationtypes.Mutator) mutationtypes.Mutator {
	switch wrapped := mutator.(type) {
	case *stopping:
		return wrapped.Mutator
	case *stoppingWithSchema:
		return inner(wrapped.MutatorWithSchema)
	case *modifySet:
		return wrapped.Mutator
	}
	return mutator
}
