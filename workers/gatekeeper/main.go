// Gatekeeper is a worker that evaluates Gatekeeper's documents with Gatekeeper's own code. Each constraint is a policy with
// the name KIND/NAME, and all together are the policy "validation".
//
// Documents come from folders or from a cluster, always as the complete list, and become a state that does not change
// (engine.go): templatesOf compiles templates, constraintsOf checks constraints by them, configurationOf reads Config and SyncSet,
// and inventoryOf keeps every object of another kind. A further kind has such a function: it takes all documents and
// what is known of those before, passes over other kinds, and returns what does not change any more, with a problem for each
// document that cannot be used (documents.go). A state made of it is served by worker.Server.Replace.
//
// A call derives from its request what all policies need (request.go), has the driver of the template evaluate its
// constraint (review.go), and answers as Gatekeeper's webhook does (answer.go).
package main

import (
	"context"
	"log"
	"os"

	documents "admission-gateway.io/engines"
	"admission-gateway.io/worker"
	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	// The engine's own log would have an entry for each review that a mutator fails on, with the object.
	ctrllog.SetLogger(logr.Discard())
	server := worker.NewServer()
	logger := log.New(os.Stderr, "", log.LstdFlags|log.LUTC|log.Lmsgprefix)
	logger.SetPrefix("worker: ")
	served := newEngine(server, logger)
	server.Flags(externalDataUsage, served.external.define)
	server.BeforeServing(served.external.begin)
	source := &documents.Source{Log: logger}
	server.Flags(documents.Usage, source.Define)
	server.BeforeServing(func(ctx context.Context) error { return source.Follow(ctx, wanted, served.applier(source.Cluster)) })
	server.Main()
}
