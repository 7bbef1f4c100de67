package worker

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

const (
	// maxConnections is the limit of open connections.
	maxConnections = 1024
	// maxRPCs is the limit of open calls, and of those of one connection the latter: a gateway has a stream, and as many calls
	// of Review as its maxInFlight.
	maxRPCs, maxConnectionRPCs = 16_384, 4096
)

// client is one connection, as it was accepted.
type client struct {
	net.Conn
	credentials.AuthInfo
	shares [kinds]share
	// rpcs counts the open calls.
	rpcs atomic.Int64
	// lastRead is when something has come in, in nanoseconds since 1970.
	lastRead atomic.Int64
	closed   func()
}

func (c *client) Read(into []byte) (int, error) {
	read, err := c.Conn.Read(into)
	c.lastRead.Store(time.Now().UnixNano())
	return read, err
}

func (c *client) Close() error {
	c.closed()
	return c.Conn.Close()
}

// host returns the address without the port; empty for a unix socket.
func (c *client) host() string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	return host
}

// connections has the open connections of all listeners.
type connections struct {
	limit int
	mu    sync.Mutex
	open  map[*client]struct{}
}

// listener accepts connections within the limit.
type listener struct {
	net.Listener
	connections *connections
}

func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.connections.add(raw), nil
}

// add returns an accepted connection. Beyond the limit another one is closed.
func (c *connections) add(raw net.Conn) *client {
	made := &client{Conn: raw}
	made.lastRead.Store(time.Now().UnixNano())
	made.closed = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, made)
	}
	c.mu.Lock()
	var least *client
	if len(c.open) >= c.limit {
		least = c.least()
		delete(c.open, least)
	}
	c.open[made] = struct{}{}
	c.mu.Unlock()
	if least != nil {
		_ = least.Conn.Close()
	}
	return made
}

// least returns the connection that is missed least, of the host that has most: one without a call, or else the one
// that has sent nothing for longest; requires the mutex.
func (c *connections) least() (least *client) {
	counts := make(map[string]int)
	for each := range c.open {
		counts[each.host()]++
	}
	for each := range c.open {
		switch {
		case least == nil:
			least = each
		case counts[each.host()] != counts[least.host()]:
			if counts[each.host()] > counts[least.host()] {
				least = each
			}
		case (each.rpcs.Load() == 0) != (least.rpcs.Load() == 0):
			if each.rpcs.Load() == 0 {
				least = each
			}
		case each.lastRead.Load() < least.lastRead.Load():
			least = each
		}
	}
	return least
}

// guarded are the credentials of a server whose calls know their connection.
type guarded struct {
	credentials.TransportCredentials
	limits *limits
}

func (g guarded) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	of, ok := raw.(*client)
	if !ok {
		return nil, nil, errors.New("the connection is not of a listener of the worker")
	}
	conn, info, err := g.TransportCredentials.ServerHandshake(of)
	if err != nil {
		return nil, nil, err
	}
	of.AuthInfo = info
	return newIncomplete(conn, of, g.limits.received), of, nil
}

func (g guarded) Clone() credentials.TransportCredentials {
	return guarded{g.TransportCredentials.Clone(), g.limits}
}

// clientIn returns the connection of a call; a new one in a test without a connection.
func clientIn(ctx context.Context) *client {
	if found, ok := peer.FromContext(ctx); ok {
		if of, ok := found.AuthInfo.(*client); ok {
			return of
		}
	}
	return &client{}
}

// openedKey is the key of a call's part of the open calls in its context.
type openedKey struct{}

// open counts a call until it ends. Beyond the limit, the connection that has most loses one.
func (l *limits) open(ctx context.Context, _ *tap.Info) (context.Context, error) {
	of := clientIn(ctx)
	counted, cancel := context.WithCancelCause(ctx)
	opened := &part{of: of, end: cancel}
	of.rpcs.Add(1)
	l.rpcs.set(opened, 1)
	context.AfterFunc(ctx, func() {
		of.rpcs.Add(-1)
		l.rpcs.set(opened, 0)
		cancel(nil)
	})
	return context.WithValue(counted, openedKey{}, opened), nil
}
