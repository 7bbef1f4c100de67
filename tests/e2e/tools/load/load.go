package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// pause keeps a client that cannot even connect from doing nothing but trying.
const pause = 10 * time.Millisecond

var streamID = regexp.MustCompile(`stream ID \d+; `)

// load is one run. Clients share the request, which no transport may change, and count for themselves.
type load struct {
	*options
	transport http.RoundTripper
	request   *http.Request
	body      []byte

	started, measureFrom, end time.Time
	begun, measured           atomic.Int64
}

// client is what one client has seen.
type client struct {
	warmup    int
	latencies []time.Duration // of creates that were answered 2xx after the warm-up
	failures  []failure
	last      time.Time // when the last answer came
}

type failure struct {
	status  int // 0: no answer came
	message string
	at      time.Duration // since the load was started
}

func (l *load) run(stop context.Context) *report {
	l.started = time.Now()
	l.measureFrom = l.started.Add(time.Duration(l.warmup * float64(time.Second)))
	l.end = l.measureFrom.Add(time.Duration(l.seconds * float64(time.Second)))
	clients := make([]client, l.clients)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() { l.create(stop, &clients[i]) })
	}
	running.Wait()
	return l.report(clients)
}

// create is one client's loop.
func (l *load) create(stop context.Context, c *client) {
	for {
		begin, more := l.next(stop)
		if !more {
			return
		}
		status, message := l.send()
		c.last = time.Now()
		switch {
		case status < 200 || status > 299:
			c.failures = append(c.failures, failure{status, message, c.last.Sub(l.started)})
			if status == 0 {
				time.Sleep(pause)
			}
		case begin.Before(l.measureFrom):
			c.warmup++
		default:
			c.latencies = append(c.latencies, c.last.Sub(begin))
		}
	}
}

// next waits until a create may begin and returns the time it counts from, or false when the load is over.
func (l *load) next(stop context.Context) (time.Time, bool) {
	begin := time.Now()
	if l.rate > 0 {
		begin = l.started.Add(time.Duration(float64(l.begun.Add(1)-1) / l.rate * float64(time.Second)))
		if begin.Before(l.end) {
			select {
			case <-time.After(time.Until(begin)):
			case <-stop.Done():
			}
		}
	}
	if stop.Err() != nil || !begin.Before(l.end) || !time.Now().Before(l.end) {
		return begin, false
	}
	if l.count > 0 && !begin.Before(l.measureFrom) && l.measured.Add(1) > int64(l.count) {
		return begin, false
	}
	return begin, true
}

// send makes one create and returns its status, and for a failed one what was said about it.
func (l *load) send() (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	request := l.request.WithContext(ctx)
	request.Body = io.NopCloser(bytes.NewReader(l.body))
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.body)), nil }
	answer, err := l.transport.RoundTrip(request)
	if err != nil {
		return 0, describe(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
		return answer.StatusCode, statusMessage(text)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0, "in the answer: " + describe(err)
	}
	return answer.StatusCode, ""
}

// statusMessage returns the message of a Kubernetes Status, or the text if it is none.
func statusMessage(text []byte) string {
	var status struct{ Message string }
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return status.Message
	}
	return string(text)
}

// describe leaves out the local port and the stream's number, so that equal errors have equal texts.
func describe(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return operation.Op + ": " + operation.Err.Error()
	}
	return streamID.ReplaceAllString(err.Error(), "")
}
