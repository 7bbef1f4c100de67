package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"admission-gateway.io/worker"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxViolations is how many violations an answer names: the user reads them.
	maxViolations = 100
	// maxMessageBytes is how much of a message an answer has. A hundred of them are less than kube-apiserver's limit of an
	// answer, 3 MiB, and than the contract's, 8 MiB.
	maxMessageBytes = 4096
	// annotation has what a constraint with the action dryrun has found.
	annotation = "violations"
)

// answer answers a review: denials in one message, a warning for each violation that only warns, and the others in an
// audit annotation. The order is that of Gatekeeper, by action and message (frameworks:pkg/types/responses.go), and then by name.
func answer(review *worker.Review, violations []violation) error {
	slices.SortStableFunc(violations, func(a, b violation) int {
		return cmp.Or(
			strings.Compare(a.action, b.action), strings.Compare(a.message, b.message),
			strings.Compare(a.constraint.name(), b.constraint.name()),
		)
	})
	denials, warnings, others := linesOf(violations, deny), linesOf(violations, warn), linesOf(violations, dryrun)
	for _, line := range warnings {
		review.Warn(line)
	}
	if len(others) > 0 {
		review.Annotate(annotation, strings.Join(others, "\n"))
	}
	if len(denials) == 0 {
		return nil
	}
	return worker.Deny(strings.Join(denials, "\n"), worker.WithReason(metav1.StatusReasonForbidden))
}

// linesOf returns the lines of the violations with the action.
func linesOf(violations []violation, action string) []string {
	var lines []string
	left := 0
	for _, found := range violations {
		switch {
		case !slices.Contains(found.actions, action):
		case len(lines) == maxViolations:
			left++
		default:
			lines = append(lines, fmt.Sprintf("[%s] %s", found.constraint.object.GetName(), cut(found.message)))
		}
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("and %d more violations", left))
	}
	return lines
}

// cut returns the message, or its beginning.
func cut(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	end := maxMessageBytes
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}

// failed is the denial with which Gatekeeper's webhooks answer an error of their own.
func failed(err error) error {
	return worker.Deny(cut(err.Error()), worker.WithCode(http.StatusInternalServerError))
}
