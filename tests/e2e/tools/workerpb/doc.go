// Package workerpb is the worker contract in Go. The rest of it is generated from protos/ by every build and laid
// over this folder (tests/e2e/go_tools.py); it is not kept here.
package workerpb
