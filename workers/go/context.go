package worker

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of a call. Its channel and its timer are made on first use: most policies never wait,
// and a timer wakes up a thread of an idle program.
type callContext struct {
	stream   context.Context
	deadline time.Time

	mu    sync.Mutex
	made  context.Context
	end   context.CancelFunc
	ended bool
}

func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *callContext) Done() <-chan struct{}       { return c.real().Done() }
func (c *callContext) Err() error                  { return c.real().Err() }
func (c *callContext) Value(key any) any           { return c.real().Value(key) }

// real returns the context with channel and timer.
func (c *callContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, c.end = context.WithDeadline(c.stream, c.deadline)
		if c.ended {
			c.end()
		}
	}
	return c.made
}

// cancel cancels the context.
func (c *callContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.end != nil {
		c.end()
	}
}
