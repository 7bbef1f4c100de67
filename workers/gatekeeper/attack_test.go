package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"admission-gateway.io/worker"
)

// loops takes hours: 10^12 steps.
var loops = regoTemplate("Loops", `violation[{"msg": "done"}] {
  n := numbers.range(1, 10000)
  count([1 | n[_]; n[_]; n[_]]) == 0
}`)

// withDeadline calls a policy whose deadline is short.
func withDeadline(t *testing.T, s *state, within time.Duration) error {
	t.Helper()
	prepared, err := s.constraints[0].prepare([]byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return s.policy(s.constraints[0])(ctx, parseReview(t, pod, worker.WithPrepared(prepared)))
}

func TestALoopEndsAtTheDeadline(t *testing.T) {
	s := stateOf(t, loops, constraintText("Loops", "slow", "{}"))
	if err := withDeadline(t, s, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestOneThatLoopsLeavesProcessorsToOthers(t *testing.T) {
	s := stateOf(t, loops, needsLabel,
		constraintText("Loops", "slow", "{}"), constraintText("NeedsLabel", "owners", "{parameters: {}}"))
	ctx, cancel := context.WithCancel(t.Context())
	slow := s.constraints[0].constraint
	var ended sync.WaitGroup
	for range 50 {
		ended.Go(func() { _ = s.review(ctx, parseReview(t, pod), slow, "") })
	}
	_, err := call(t, s, "NeedsLabel/owners", pod, "{}")
	denied(t, err, 403, "[owners] web has no label team")
	if running := len(slow.turns); running > cap(slow.turns) {
		t.Errorf("%d are evaluated at once", running)
	}
	cancel()
	ended.Wait()
}

func TestAReviewThatALoopDoesNotMatchDoesNotWaitForIt(t *testing.T) {
	s := stateOf(t, loops, constraintText("Loops", "slow", "{match: {namespaces: [other]}}"))
	held := s.constraints[0].constraint.turns
	for range cap(held) {
		held <- struct{}{}
	}
	if err := withDeadline(t, s, time.Minute); err != nil {
		t.Error(err)
	}
}

func TestMuchMemoryEndsTheEvaluation(t *testing.T) {
	before := debug.SetMemoryLimit(128 << 20)
	defer debug.SetMemoryLimit(before)
	defer debug.FreeOSMemory()
	for name, rules := range map[string]string{
		"a comprehension": `violation[{"msg": "done"}] {
  n := numbers.range(1, 10000)
  count([sprintf("%d %d", [x, y]) | x := n[_]; y := n[_]]) == 0
}`,
		"strings that double": `violation[{"msg": "done"}] {
  a := concat("", [sprintf("%1000000d", [1]), sprintf("%1000000d", [1])])
  b := [concat("", [a, a, a, a, sprintf("%d", [x])]) | x := numbers.range(1, 1000)[_]]
  count(b) == 0
}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(t, regoTemplate("Grows", rules), constraintText("Grows", "big", "{}"))
			err := withDeadline(t, s, time.Minute)
			if err == nil || !strings.Contains(err.Error(), "memory limit of 128 MiB") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// doubled has values each of which is twice the one before: they are small until they are written.
func doubled(times int) string {
	lines := []string{"v0 := [1, 2]"}
	for index := range times {
		lines = append(lines, fmt.Sprintf("v%d := [v%d | [1, 2][_]]", index+1, index))
	}
	return strings.Join(lines, "; ")
}

func TestAFunctionThatWouldMakeTooMuchEndsTheEvaluation(t *testing.T) {
	const text, elements = "16 MiB of text", "1048576 elements"
	for _, sample := range []struct{ function, limit, rules string }{
		{"sprintf", text, `sprintf("%v", [v60]) == ""`},
		{"sprintf", text, `sprintf(replace(sprintf("%100d", [1]), " ", "%[1]s"), [sprintf("%1000000d", [1])]) == ""`},
		{"sprintf", text, `sprintf(replace(sprintf("%100d", [1]), " ", "%[1]1000000d"), [1]) == ""`},
		{"concat", text, `long := sprintf("%1000000d", [1]); concat("", [long | numbers.range(1, 100)[_]]) == ""; concat("", [each | numbers.range(1, 100)[_]; each := long]) == ""`},
		{"json.marshal", text, "json.marshal(v60) == \"\""},
		{"yaml.marshal", text, "yaml.marshal(v60) == \"\""},
		{"json.unmarshal", elements, `json.unmarshal(concat("", ["[1", replace(sprintf("%1000000d", [1]), " ", ",1,1"), "]"])) == 1`},
		{"split", elements, `long := sprintf("%1000000d", [1]); split(concat("", [long, "-", long]), "") == []`},
		{"bits.lsh", "1048576 bits", "bits.lsh(1, 100000000000000) == 0"},
		{"hook.message", text, "true"},
	} {
		message := `"done"`
		if sample.function == "hook.message" {
			message = "v60"
		}
		rules := fmt.Sprintf(`violation[{"msg": %s}] { %s; %s }`, message, doubled(60), sample.rules)
		s := stateOf(t, regoTemplate("Makes", rules), constraintText("Makes", "much", "{}"))
		err := withDeadline(t, s, time.Minute)
		if want := "admission.k8s.gatekeeper.sh: Rego: the evaluation was ended: " + sample.function + " would make more than " + sample.limit; err == nil || err.Error() != want {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}

func TestDetailsMakeOneMessageSeveralViolations(t *testing.T) {
	s := stateOf(t, regoTemplate("Details", `violation[{"msg": "found", "details": [1, 2][_]}] { true }`), constraintText("Details", "many", "{}"))
	_, err := call(t, s, "Details/many", pod, "{}")
	denied(t, err, 403, "[many] found\n[many] found")
}

func TestTheGuardEndsTheOldestFirst(t *testing.T) {
	var isOver atomic.Bool
	watched := newGuard()
	watched.isOver = func() (bool, uint64) { return isOver.CompareAndSwap(true, false), 1 << 20 }
	first, one := watched.begin(t.Context())
	defer watched.end(one)
	time.Sleep(2 * guardAge)
	second, two := watched.begin(t.Context())
	defer watched.end(two)
	isOver.Store(true)
	<-first.Done()
	if cause := context.Cause(first); !strings.Contains(cause.Error(), "memory limit of 1 MiB") {
		t.Errorf("got %v", cause)
	}
	if second.Err() != nil {
		t.Error("the second has ended too")
	}
}

func TestAFloodOfMessagesIsCut(t *testing.T) {
	s := stateOf(t, regoTemplate("Floods", `violation[{"msg": msg}] {
  msg := sprintf("%06d %s", [numbers.range(1, 5000)[_], input.parameters.label])
}`), constraintText("Floods", "many", `{parameters: {label: "`+strings.Repeat("ä", 3000)+`"}}`))
	_, err := call(t, s, "Floods/many", pod, "{}")
	var denial *worker.Denial
	if !errors.As(err, &denial) {
		t.Fatal(err)
	}
	lines := strings.Split(denial.Message, "\n")
	if len(lines) != maxViolations+1 || lines[maxViolations] != "and 4900 more violations" || !strings.HasPrefix(lines[99], "[many] 000100 ä") {
		t.Errorf("got %d lines, %.100q and %q", len(lines), lines[0], lines[len(lines)-1])
	}
	for _, line := range lines {
		if len(line) > maxMessageBytes+20 || strings.ToValidUTF8(line, "?") != line {
			t.Errorf("got %d bytes", len(line))
		}
	}
}

func TestADeepObjectIsEvaluated(t *testing.T) {
	s := stateOf(t, regoTemplate("Walks", `violation[{"msg": "found"}] { walk(input.review.object, [_, "bottom"]) }`),
		constraintText("Walks", "deep", "{}"))
	const depth = 2000
	deep := strings.Repeat(`{"a":`, depth) + `"bottom"` + strings.Repeat("}", depth)
	_, err := call(t, s, "Walks/deep", strings.Replace(pod, `"metadata": {`, `"spec": `+deep+`, "metadata": {`, 1), "{}")
	denied(t, err, 403, "[deep] found")
}

// reaching has functions with which a policy would reach out of its evaluation.
func TestFunctionsThatReachOutDoNotCompile(t *testing.T) {
	for name, expression := range map[string]string{
		"http.send":          `http.send({"method": "get", "url": "http://127.0.0.1"})`,
		"net.lookup_ip_addr": `net.lookup_ip_addr("localhost")`,
		"opa.runtime":        `opa.runtime()`,
		// These loop without a look at the deadline.
		"graph.reachable_paths":   `graph.reachable_paths({}, [])`,
		"strings.render_template": `strings.render_template("", {})`,
	} {
		_, problems := quietEngine().stateOf(parse(t, regoTemplate("Reaches", fmt.Sprintf(`violation[{"msg": "x"}] { %s }`, expression))))
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), "undefined function "+name) {
			t.Errorf("%s: got %v", name, problems)
		}
	}
}

func TestVariablesThatDoubleDoNotCompile(t *testing.T) {
	double := func(times int, pattern string) string {
		lines := []string{`v0 := input.review.object`}
		for index := range times {
			lines = append(lines, strings.NewReplacer("NEW", fmt.Sprintf("v%d", index+1), "OLD", fmt.Sprintf("v%d", index)).Replace(pattern))
		}
		return strings.Join(lines, "\n")
	}
	for _, pattern := range []string{
		"NEW := [OLD, OLD]", `NEW = {"a": OLD, "b": OLD}`, `[_, NEW] := ["x", {[OLD], [[OLD]]}]`, "[OLD, OLD] = NEW",
	} {
		for times, expected := range map[int]int{6: 0, 40: 1} {
			for _, rules := range []string{
				`violation[{"msg": "x"}] { %s; count(VALUE) == 7 }`,
				`violation[{"msg": "x", "details": VALUE}] { %s }`,
				`violation[{"msg": "x"}] { count([VALUE | %s]) == 7 }`,
				"f(x) = VALUE { %s }\n" + `violation[{"msg": "x"}] { count(f(1)) == 7 }`,
				"g = 1 { false } else = VALUE { %s }\n" + `violation[{"msg": "x"}] { count(g) == 7 }`,
			} {
				rules = strings.ReplaceAll(fmt.Sprintf(rules, double(times, pattern)), "VALUE", fmt.Sprintf("v%d", times))
				_, problems := quietEngine().stateOf(parse(t, regoTemplate("Doubles", rules)))
				if len(problems) != expected || expected == 1 && !strings.Contains(problems[0].Error(), "make a value of more than 65536 elements") {
					t.Errorf("%s: got %v", rules, problems)
				}
			}
		}
	}
}

func TestSchemasOfRegoAreNotFetched(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	s := stateOf(t, regoTemplate("Reaches", fmt.Sprintf(`violation[{"msg": "x"}] {
  json.match_schema({}, {"$ref": "%s/schema.json"})
}
violation[{"msg": "y"}] { json.verify_schema({"$ref": "%s/schema.json"})[0] }`, server.URL, server.URL)), constraintText("Reaches", "out", "{}"))
	if _, err := call(t, s, "Reaches/out", pod, "{}"); err != nil || asked.Load() != 0 {
		t.Errorf("got %v after %d requests", err, asked.Load())
	}
}
