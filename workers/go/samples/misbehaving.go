package samples

import (
	"context"
	"fmt"
	"time"

	"admission-gateway.io/worker"
)

// sleepTime is twice the longest timeout of a webhook.
const sleepTime = time.Minute

// Sleeps answers too late: after a minute, or when it is cancelled.
func Sleeps(ctx context.Context, _ *worker.Review) error {
	select {
	case <-time.After(sleepTime):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Fails has a bug that shows on every review.
func Fails(_ context.Context, review *worker.Review) error {
	return fmt.Errorf("this policy always fails (review %s)", review.UID())
}
