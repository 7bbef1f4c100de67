package worker

import (
	"context"
	"flag"
)

// additions are what a program adds to [Server.Main].
type additions struct {
	usage  string
	define []func(*flag.FlagSet)
	begin  []func(context.Context) error
}

// Flags has define add flags of the program's own to those of [Server.Main]. usage describes them below the others: a
// line for each, as in the output of --help.
func (s *Server) Flags(usage string, define func(*flag.FlagSet)) {
	s.additions.usage += usage
	s.additions.define = append(s.additions.define, define)
}

// BeforeServing has [Server.Main] call prepare after the arguments are parsed, and before it listens: prepare may
// register policies, or replace them later. Its context ends with the program. An error, whose lines
// are printed, ends the program with status 1.
func (s *Server) BeforeServing(prepare func(ctx context.Context) error) {
	s.additions.begin = append(s.additions.begin, prepare)
}

// prepare calls what is to be called before the server listens.
func (a *additions) prepare(ctx context.Context) error {
	for _, begin := range a.begin {
		if err := begin(ctx); err != nil {
			return err
		}
	}
	return nil
}
