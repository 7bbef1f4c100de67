// Package worker is the SDK for admission policies in Go: a policy is a function, and [Server] serves it.
//
//	server := worker.NewServer()
//	server.Policy("require-team-label", "Every workload names its team.",
//		func(ctx context.Context, review *worker.Review) error {
//			if review.Read("object", "metadata", "labels", "team").Text() == "" {
//				return worker.Deny(
//					"metadata.labels[team]: every workload names its team: add the label",
//					worker.WithField("metadata.labels[team]"),
//				)
//			}
//			return nil
//		})
//	server.Main()
//
// A policy returns nil to allow and the error of [Deny] to deny. Any other error, and a panic, is a failure of
// the webhook, and failurePolicy decides.
package worker
