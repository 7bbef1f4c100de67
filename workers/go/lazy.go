package worker

import (
	"context"
	"sync"
	"time"
)

// lazyContext is the context of one call of a stream. Most policies never ask for more than its deadline, so
// the timer and the entry in the parent's list of children that a context costs are made when one does.
type lazyContext struct {
	parent   context.Context
	deadline time.Time

	mu        sync.Mutex
	inner     context.Context
	cancel    context.CancelFunc
	cancelled bool
}

func (c *lazyContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *lazyContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.parent, c.deadline)
		if c.cancelled {
			c.cancel()
		}
	}
	return c.inner.Done()
}

func (c *lazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return c.inner.Err()
	case c.cancelled:
		return context.Canceled
	case c.parent.Err() != nil:
		return c.parent.Err()
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value asks the context that Done made, if it did: that is how package context finds out that it can add a
// child without a goroutine that waits for this one.
func (c *lazyContext) Value(key any) any {
	c.mu.Lock()
	inner := c.inner
	c.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return c.parent.Value(key)
}

// end cancels the context: its call was cancelled, or is over.
func (c *lazyContext) end() {
	c.mu.Lock()
	c.cancelled = true
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
