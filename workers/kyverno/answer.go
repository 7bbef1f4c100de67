package main

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"admission-gateway.io/worker"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	webhookutils "github.com/kyverno/kyverno/pkg/webhooks/utils"
)

// Actions of the parameters.
const (
	deny  = "deny"
	warn  = "warn"
	audit = "audit"
)

const (
	// maxMessages is how many messages an answer has: the user reads them.
	maxMessages = 100
	// maxMessageBytes is how much of a message an answer has, and maxDenialBytes how much of a denial, which has all messages.
	maxMessageBytes = 4096
	maxDenialBytes  = 64 * 1024
	// annotation has what a rule with the action audit has found.
	annotation = "violations"
)

// blocked is the denial of Kyverno's validating webhook. It has no code there, of which kube-apiserver makes 400.
func blocked(responses []engineapi.EngineResponse) error {
	return refused(webhookutils.GetBlockedMessages(responses))
}

func refused(text string) error {
	return worker.Deny(cut(text, maxDenialBytes), worker.WithCode(http.StatusBadRequest))
}

// violations returns a line for each rule that fails or errs, as Kyverno's warnings have them.
func violations(response engineapi.EngineResponse) (lines []string) {
	for _, rule := range response.PolicyResponse.Rules {
		if rule.HasStatus(engineapi.RuleStatusFail, engineapi.RuleStatusError) {
			lines = append(lines, fmt.Sprintf("policy %s.%s: %s", response.Policy().GetName(), rule.Name(), rule.Message()))
		}
	}
	return lines
}

// tell adds warnings.
func tell(review *worker.Review, lines []string) {
	for _, each := range bounded(lines) {
		review.Warn(each)
	}
}

// note adds the audit annotation.
func note(review *worker.Review, lines []string) {
	if len(lines) > 0 {
		review.Annotate(annotation, strings.Join(bounded(lines), "\n"))
	}
}

// Audit annotations of answers to tests: the status of the rule, and its name.
const (
	statusAnnotation = "status"
	ruleAnnotation   = "rule"
)

// record tells a test what a rule makes of the object; nothing if the rule is not for it. Of rules that are bound together it is
// RULE=STATUS of each.
func record(review *worker.Review, response engineapi.EngineResponse) {
	rules := response.PolicyResponse.Rules
	switch {
	case len(rules) == 0:
	case len(response.Policy().AsKyvernoPolicy().GetSpec().Rules) == 1 && len(rules) == 1:
		review.Annotate(statusAnnotation, string(rules[0].Status()))
		review.Annotate(ruleAnnotation, rules[0].Name())
	default:
		found := make([]string, len(rules))
		for index, each := range rules {
			found[index] = each.Name() + "=" + string(each.Status())
		}
		review.Annotate(statusAnnotation, strings.Join(found, ","))
	}
}

// bounded returns the lines that an answer has.
func bounded(lines []string) []string {
	made := make([]string, 0, min(len(lines), maxMessages+1))
	for index, each := range lines {
		if index == maxMessages {
			return append(made, fmt.Sprintf("and %d more", len(lines)-maxMessages))
		}
		made = append(made, cut(each, maxMessageBytes))
	}
	return made
}

// cut returns the text, or its beginning.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
