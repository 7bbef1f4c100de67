package main

import (
	"fmt"
	"strings"
	"testing"

	"admission-gateway.io/worker"
)

// manyConstraints returns documents of constraints that divide themselves among templates.
func manyConstraints(templates, constraints int) []string {
	var texts []string
	for index := range templates {
		texts = append(texts, strings.ReplaceAll(strings.ReplaceAll(needsLabel, "NeedsLabel", fmt.Sprintf("NeedsLabel%d", index)),
			"needslabel", fmt.Sprintf("needslabel%d", index)))
	}
	for index := range constraints {
		texts = append(texts, constraintText(fmt.Sprintf("NeedsLabel%d", index%templates), fmt.Sprintf("c%d", index), "{parameters: {}}"))
	}
	return texts
}

func BenchmarkConstraint(b *testing.B) {
	for _, containers := range []int{1, 10} {
		one := `{"name": "app", "image": "registry.example.com/app:1.2.3", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"memory": "1Gi"}}}`
		request := strings.Replace(pod, `"namespace": "shop"}}`, `"namespace": "shop"}, "spec": {"containers": [`+strings.TrimSuffix(strings.Repeat(one+",", containers), ",")+`]}}`, 1)
		b.Run(fmt.Sprintf("%d bytes", len(request)), func(b *testing.B) {
			s := stateOf(b, manyConstraints(1, 1)...)
			prepared, _ := s.constraints[0].prepare([]byte("{}"))
			review := parseReview(b, request, worker.WithPrepared(prepared))
			policy := s.policy(s.constraints[0])
			b.ReportAllocs()
			for b.Loop() {
				_ = policy(b.Context(), review)
			}
		})
	}
}

func BenchmarkValidation(b *testing.B) {
	s := stateOf(b, manyConstraints(50, 500)...)
	review := parseReview(b, pod)
	for b.Loop() {
		_ = s.reviewAll(b.Context(), review)
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, templates := range []int{5, 50} {
		b.Run(fmt.Sprint(templates), func(b *testing.B) {
			texts := manyConstraints(templates, 500)
			for b.Loop() {
				stateOf(b, texts...)
			}
		})
	}
}
