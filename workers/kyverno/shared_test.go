package main

import (
	"errors"
	"math/rand/v2"
	"testing"

	"admission-gateway.io/worker"
)

// What a rule leaves in the context of a request, such as entries and elements of lists, changes no other rule: rules in
// any order, each several times, answer as on a request of their own.
func TestRulesThatShareARequestAnswerAsAlone(t *testing.T) {
	s, said := stateOf(t,
		rules("variables", enforce,
			`name: first
context: [{name: value, variable: {value: one}}]
validate: {message: "{{ value }}", deny: {conditions: {any: [{key: "{{ value }}", operator: Equals, value: one}]}}}`,
			`name: second
context: [{name: value, variable: {jmesPath: "request.object.metadata.name"}}]
validate: {message: "{{ value }}", deny: {conditions: {any: [{key: "{{ value }}", operator: Equals, value: web}]}}}`,
			`name: third
validate: {message: "{{ value || 'unset' }}", deny: {conditions: {any: [{key: "{{ value || 'unset' }}", operator: NotEquals, value: two}]}}}`),
		rules("lists", enforce,
			`name: images
validate:
  message: no latest
  foreach:
  - list: request.object.spec.containers
    context: [{name: value, variable: {jmesPath: element.name}}]
    deny: {conditions: {any: [{key: "{{ element.image }}", operator: Equals, value: "*:latest"}]}}`,
			`name: element
validate: {message: "{{ element.image || 'none' }}", deny: {conditions: {any: [{key: "{{ element.image || 'none' }}", operator: NotEquals, value: x}]}}}`,
			"name: host\nvalidate: {message: no host, pattern: {spec: {=(hostNetwork): false}}}"),
		settings,
		asks("{name: value, configMap: {name: settings, namespace: shop}}", "value.data.value"),
	)
	if len(said) > 0 {
		t.Fatal(said)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, spec := range []string{running, latest, host} {
		review, err := worker.ParseReview([]byte(pod("", spec)), worker.WithPrepared(""))
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			one := &s.served[random.IntN(len(s.served))]
			alone := s.called(t, one.name, pod("", spec), "")
			var denial *worker.Denial
			message := ""
			err := s.validate(one)(t.Context(), review)
			if errors.As(err, &denial) {
				message, err = denial.Message, nil
			}
			if message != alone.message || (err == nil) != (alone.err == nil) {
				t.Errorf("%s: found %q, %v; alone %q, %v", one.name, message, err, alone.message, alone.err)
			}
		}
	}
}
