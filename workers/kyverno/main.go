// Kyverno is a worker that evaluates Kyverno's ClusterPolicy and Policy with Kyverno's own engine. Each rule is a policy with
// the name POLICY/RULE, and all together are the policies "validation" and "mutation".
//
// Documents come from folders or from a cluster, always as the complete list, and become a state that does not change
// (state.go). Rules become policies (rules.go); what their context entries read is in context.go, data.go and cluster.go. A call
// derives from its request what all policies need (request.go, policycontext.go, jsoncontext.go), has the engine evaluate a policy
// (review.go; parts.go for mutations), and answers as Kyverno's webhooks do (answer.go).
package main

import (
	"flag"
	"log"
	"os"

	documents "admission-gateway.io/engines"
	"admission-gateway.io/worker"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	silenceLibraries()
	server := worker.NewServer()
	served := newProgram(server, log.New(os.Stderr, "", 0))
	server.Flags(documents.Usage, served.source.Define)
	server.Flags(accessUsage, served.access.define)
	server.Flags(exceptionsUsage, served.allowed.define)
	server.BeforeServing(served.begin)
	server.Main()
}

// silenceLibraries drops the engine's own log: it has an entry, with the object, for each review that a rule fails on.
func silenceLibraries() {
	ctrllog.SetLogger(logr.Discard())
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetLogger(logr.Discard())
}
