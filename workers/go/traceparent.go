package worker

import (
	"regexp"
	"strings"
)

const (
	// traceparentBytes is the length of a traceparent of version 00.
	traceparentBytes = 55
	zeroTraceID      = "00000000000000000000000000000000"
	zeroSpanID       = "0000000000000000"
)

var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// validTraceparent returns text if it is a traceparent of W3C Trace Context, otherwise the empty string.
//
// Source: https://www.w3.org/TR/trace-context/#traceparent-header-field-values.
func validTraceparent(text string) string {
	isValid := len(text) == traceparentBytes && traceparentForm.MatchString(text) && !strings.HasPrefix(text, "ff") &&
		traceID(text) != zeroTraceID && text[36:52] != zeroSpanID
	if !isValid {
		return ""
	}
	return text
}

// traceID returns the trace id in a valid traceparent.
func traceID(traceparent string) string { return traceparent[3:35] }
