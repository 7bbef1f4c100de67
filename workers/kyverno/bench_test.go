package main

import (
	"encoding/json"
	"maps"
	"os"
	"syscall"
	"testing"

	"admission-gateway.io/worker"
)

// wanted are the labels that validate rules of the load test ask for.
var wanted = []string{"app", "owner", "env", "cost", "component", "version", "part-of"}

// measured are the policies of the load test (loadtest/peers/kyverno.py): ten that validate and four that mutate, each of one rule.
func measured(b *testing.B) (validating, mutating *state) {
	b.Helper()
	texts := []string{
		container("deny-privileged", `{=(securityContext): {=(privileged): "false"}}`),
		container("deny-latest", `{image: "!*:latest"}`),
		container("require-limits", `{resources: {limits: {cpu: "?*", memory: "?*"}}}`),
	}
	for _, label := range wanted {
		texts = append(texts, rules("require-"+label, enforce,
			"name: require-"+label+"\nvalidate: {message: label, pattern: {metadata: {labels: {"+label+`: "?*"}}}}`))
	}
	validating, _ = stateOf(b, texts...)
	mutate := func(name, action string) string {
		return rules(name, "background: false", "name: "+name+"\nmutate: "+action)
	}
	mutating, _ = stateOf(b,
		mutate("a-always-pull", `{patchStrategicMerge: {spec: {containers: [{(name): "*", imagePullPolicy: Always}]}}}`),
		mutate("b-add-label", `{patchStrategicMerge: {metadata: {labels: {managed: "true"}}}}`),
		mutate("c-add-toleration",
			`{patchesJson6902: '[{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "dedicated", "operator": "Exists"}}]'}`),
		mutate("d-default-requests",
			`{patchStrategicMerge: {spec: {containers: [{(name): "*", resources: {requests: {+(cpu): 100m, +(memory): 128Mi}}}]}}}`),
	)
	return validating, mutating
}

func container(name, pattern string) string {
	return rules(name, enforce, "name: "+name+"\nvalidate: {message: container, pattern: {spec: {containers: ["+pattern+"]}}}")
}

// created returns the Pod of the load test with all labels.
func created(b *testing.B) []byte {
	b.Helper()
	text, err := os.ReadFile("../../loadtest/corpus/pod-create-6kb.json")
	if err != nil {
		b.Skip(err)
	}
	var review struct {
		Request map[string]any `json:"request"`
	}
	if err := json.Unmarshal(text, &review); err != nil {
		b.Fatal(err)
	}
	of := review.Request["object"].(map[string]any)["metadata"].(map[string]any)["labels"].(map[string]any)
	added := make(map[string]any)
	for _, label := range wanted {
		added[label] = "x"
	}
	maps.Copy(of, added)
	if text, err = json.Marshal(review.Request); err != nil {
		b.Fatal(err)
	}
	return text
}

// BenchmarkRules is what the worker does for one request: rules that validate share it, and each that mutates has an object of its own.
func BenchmarkRules(b *testing.B) {
	validating, mutating := measured(b)
	text := created(b)
	for _, each := range []struct {
		name  string
		of    *state
		calls func(*served) worker.PolicyFunc
	}{{"validate", validating, validating.validate}, {"mutate", mutating, mutating.mutate}} {
		b.Run(each.name, func(b *testing.B) {
			b.ReportAllocs()
			began := processorTime(b)
			for b.Loop() {
				var review *worker.Review
				for index := range each.of.served {
					one := &each.of.served[index]
					if one.mutating || review == nil {
						var err error
						if review, err = worker.ParseReview(text, worker.WithPrepared("")); err != nil {
							b.Fatal(err)
						}
					}
					if err := each.calls(one)(b.Context(), review); err != nil {
						b.Fatalf("%s: %v", one.name, err)
					}
					if changes, err := review.Changes(); err != nil || one.mutating != (len(changes) > 0) {
						b.Fatalf("%s: %v, %v", one.name, changes, err)
					}
				}
			}
			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N)/1000, "us-of-processor/op")
		})
	}
}

// processorTime is what the process has used, in nanoseconds. Unlike the time of a benchmark it does not grow when other programs run.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}
