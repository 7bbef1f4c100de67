package worker

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxKeptParametersBytes is the limit of the parameters that all streams keep.
	maxKeptParametersBytes = 64 * 1024 * 1024
	// maxReceivedBytes is the limit of what has arrived and is not answered: incomplete messages, and the payloads of
	// calls in flight.
	maxReceivedBytes = 256 * 1024 * 1024
)

// store bounds what all clients together make the worker keep. Beyond the limit, the client that has most loses its
// largest part, whoever has come last.
type store struct {
	what  string
	limit int

	mu      sync.Mutex
	total   int
	clients map[*client]*holding
}

// holding is what one client has.
type holding struct {
	bytes int
	parts map[*part]struct{}
}

// part is what one stream, call or connection has in a store.
type part struct {
	of *client
	// end is called in a separate goroutine, at most once.
	end   func(error)
	bytes int
	ended bool
}

func newStore(what string, limit int) *store {
	return &store{what: what, limit: limit, clients: make(map[*client]*holding)}
}

// set changes the size of a part; 0 removes it.
func (s *store) set(changed *part, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed.ended || changed.bytes == bytes {
		return
	}
	s.change(changed, bytes)
	for s.total > s.limit {
		s.endLargest()
	}
}

// endBy replaces what ends a part.
func (s *store) endBy(kept *part, end func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept.end = end
}

// change sets the size; requires the mutex.
func (s *store) change(changed *part, bytes int) {
	has := s.clients[changed.of]
	if has == nil {
		has = &holding{parts: make(map[*part]struct{})}
		s.clients[changed.of] = has
	}
	s.total += bytes - changed.bytes
	has.bytes += bytes - changed.bytes
	changed.bytes = bytes
	if bytes > 0 {
		has.parts[changed] = struct{}{}
		return
	}
	delete(has.parts, changed)
	if len(has.parts) == 0 {
		delete(s.clients, changed.of)
	}
}

// endLargest ends the largest part of the client that has most; requires the mutex.
func (s *store) endLargest() {
	most := &holding{}
	for _, has := range s.clients {
		if has.bytes > most.bytes {
			most = has
		}
	}
	largest := &part{}
	for kept := range most.parts {
		if kept.bytes > largest.bytes {
			largest = kept
		}
	}
	s.change(largest, 0)
	largest.ended = true
	text := fmt.Sprintf("there are more than %d %s, most of them of this client", s.limit, s.what)
	go largest.end(status.Error(codes.ResourceExhausted, text))
}
