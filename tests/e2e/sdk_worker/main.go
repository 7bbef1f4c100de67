// Command main serves the policies of tests/e2e/tools/policy with the Go SDK.
package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"admission-gateway.io/worker"
)

const (
	policies  = 10
	refusedBy = "refused-by"
	applied   = "applied"
)

// refuse denies what carries the label "refused-by" with the policy's name.
func refuse(name string) worker.PolicyFunc {
	return func(_ context.Context, review *worker.Review) error {
		by, _, _ := unstructured.NestedString(review.Object(), "metadata", "labels", refusedBy)
		if by == name {
			return worker.Deny(fmt.Sprintf("label %q names %s", refusedBy, name))
		}
		return nil
	}
}

// setLabel denies as refuse does, and sets the label of the policy's name.
func setLabel(name string) worker.PolicyFunc {
	refused := refuse(name)
	return func(ctx context.Context, review *worker.Review) error {
		if err := refused(ctx, review); err != nil || review.Object() == nil {
			return err
		}
		return unstructured.SetNestedField(review.Object(), applied, "metadata", "labels", name)
	}
}

func main() {
	server := worker.NewServer()
	for number := range policies {
		trivial, label := fmt.Sprintf("policy-%d", number), fmt.Sprintf("label%d", number)
		server.Policy(trivial, "", refuse(trivial))
		server.MutatingPolicy(label, "", setLabel(label))
	}
	server.Main()
}
