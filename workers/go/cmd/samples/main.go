// The sample policies as a worker: go run ./cmd/samples.
package main

import (
	"admission-gateway.io/worker"
	"admission-gateway.io/worker/samples"
)

func main() {
	server := worker.NewServer()
	samples.Register(server)
	server.Main()
}
