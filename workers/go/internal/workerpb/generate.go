// Package workerpb is generated from the worker contract, protos/admissiongateway/worker/v1/worker.proto.
package workerpb

//go:generate sh generate.sh
