package worker

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
)

// durationBounds are the upper bounds of the duration histogram, the same in the SDKs of all languages.
var durationBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// result is the outcome of a call as a label.
type result int

const (
	resultAllowed result = iota
	resultDenied
	resultError
	results
)

var resultNames = [results]string{"allowed", "denied", "error"}

// meter counts the calls of one policy. A nil meter counts nothing.
type meter struct {
	reviews  [results]atomic.Uint64
	inFlight atomic.Int64
	// durations has those up to each bound and above the one before; the last: above all bounds.
	durations [len(durationBounds) + 1]atomic.Uint64
	nanos     atomic.Int64
}

// begin counts a call in flight, and returns its start for end.
func (m *meter) begin() time.Time {
	if m == nil {
		return time.Time{}
	}
	m.inFlight.Add(1)
	return time.Now()
}

// end counts the outcome of a call. The start is zero if its policy has not begun. A cancelled call has no outcome.
func (m *meter) end(start time.Time, ended outcome) {
	if m == nil {
		return
	}
	switch {
	case ended.err != nil && ended.err.Code == int32(codes.Canceled):
		m.cancel(start)
		return
	case ended.err != nil:
		m.reviews[resultError].Add(1)
	case ended.response.Allowed:
		m.reviews[resultAllowed].Add(1)
	default:
		m.reviews[resultDenied].Add(1)
	}
	if start.IsZero() {
		return
	}
	took := time.Since(start)
	bucket := 0
	for bucket < len(durationBounds) && took > durationBounds[bucket] {
		bucket++
	}
	m.durations[bucket].Add(1)
	m.nanos.Add(int64(took))
	m.inFlight.Add(-1)
}

// cancel counts a call as no longer in flight, if its policy has begun.
func (m *meter) cancel(start time.Time) {
	if m != nil && !start.IsZero() {
		m.inFlight.Add(-1)
	}
}
