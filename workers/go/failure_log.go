package worker

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// failureInterval is the interval of logged failures for each policy: lines of all failures would use too much CPU.
	failureInterval = time.Second
	// continued begins each line of a stack trace; no record begins with it.
	continued = "    | "
	// maxLoggedRunes is the limit of each value in a record and of a line of a stack trace.
	maxLoggedRunes = 1000
	// maxStackLines is the limit of the lines of a stack trace.
	maxStackLines = 100
	// logTime is RFC 3339 with milliseconds.
	logTime = "2006-01-02T15:04:05.000Z07:00"
)

// logFailure logs a failed review as one line, with the stack trace in marked lines after it. It writes one failure a
// second for each policy and counts the others in the next one.
//
// Values are quoted and their control characters escaped, so that no text can begin another record.
func (p *policy) logFailure(review *Review, text string, stack []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.quietUntil) {
		p.unlogged++
		return
	}
	line := &strings.Builder{}
	fmt.Fprintf(line, "%s ERROR worker: policy failed: policy=%s", now.UTC().Format(logTime), quoted(p.name))
	if uid := review.UID(); uid != "" {
		fmt.Fprintf(line, " uid=%s", quoted(string(uid)))
	}
	if trace := review.Traceparent(); trace != "" {
		fmt.Fprintf(line, " trace_id=%q", traceID(trace))
	}
	fmt.Fprintf(line, " error=%s", quoted(text))
	if p.unlogged > 0 {
		fmt.Fprintf(line, " dropped=%d", p.unlogged)
	}
	for index, text := range strings.Split(strings.TrimSpace(string(stack)), "\n") {
		if len(stack) == 0 || index == maxStackLines {
			break
		}
		line.WriteString("\n" + continued + printable(text))
	}
	p.log.Print(line)
	p.quietUntil, p.unlogged = now.Add(failureInterval), 0
}

func quoted(text string) string { return strconv.Quote(firstRunes(text, maxLoggedRunes)) }

// printable returns a line of a stack trace without control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, firstRunes(text, maxLoggedRunes))
}
