// Gatekeeper is a worker that evaluates Gatekeeper's documents with Gatekeeper's own code.
package main

import "admission-gateway.io/worker"

func main() { worker.NewServer().Main() }
