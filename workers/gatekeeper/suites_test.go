package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"admission-gateway.io/worker"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// suite is a suite.yaml of gator.
type suite struct {
	Tests []struct {
		Name, Template, Constraint, Expansion string
		Invalid, Skip                         bool
		Cases                                 []suiteCase
	}
}

type suiteCase struct {
	Name, Object string
	Skip         bool
	Inventory    []string
	Assertions   []struct {
		// Violations is yes, no or a number.
		Violations any
		Message    string
	}
}

// The suites of Gatekeeper's library hold for the policies of its constraints, whose action is that of the parameters.
func TestTheSuitesOfTheLibraryHold(t *testing.T) {
	cases := 0
	eachCase(t, func(folder string, c suiteCase, files ...string) {
		cases++
		c.check(t, folder, files...)
	})
	if cases < 100 {
		t.Errorf("%d cases", cases)
	}
}

// BenchmarkSuitesOfTheLibrary reviews the object of each case by its constraint: what another engine of Rego is compared
// with.
func BenchmarkSuitesOfTheLibrary(b *testing.B) {
	var reviews []func() error
	eachCase(b, func(folder string, c suiteCase, files ...string) {
		reviews = append(reviews, c.review(b, folder, files...))
	})
	begun := cpuTime(b)
	for b.Loop() {
		for _, review := range reviews {
			_ = review()
		}
	}
	b.ReportMetric(float64((cpuTime(b)-begun).Nanoseconds())/float64(b.N*len(reviews)), "cpu-ns/review")
}

// cpuTime returns what this process has used in user mode.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano())
}

// eachCase calls use with each case of the library, and with the files of its template and constraint.
func eachCase(t testing.TB, use func(folder string, c suiteCase, files ...string)) {
	root := os.Getenv("POLICY_CORPORA")
	if root == "" {
		t.Skip("POLICY_CORPORA names no folder of public policies")
	}
	err := filepath.WalkDir(filepath.Join(root, "gatekeeper-library", "library"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "suite.yaml" {
			return err
		}
		folder := filepath.Dir(path)
		var read suite
		text, err := os.ReadFile(path)
		if err == nil {
			err = yaml.Unmarshal(text, &read)
		}
		if err != nil {
			t.Fatal(path, err)
		}
		for _, test := range read.Tests {
			for _, each := range test.Cases {
				if !test.Skip && !each.Skip && !test.Invalid {
					use(folder, each, test.Template, test.Constraint, test.Expansion)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// review returns what reviews the object by the constraint, which denies.
func (c *suiteCase) review(t testing.TB, folder string, files ...string) func() error {
	t.Helper()
	var texts []string
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(strings.TrimSpace(string(text)), "---\n")
	}
	for _, file := range append(files, c.Inventory...) {
		if file != "" {
			texts = append(texts, read(file))
		}
	}
	s := stateOf(t, texts...)
	prepared, err := s.constraints[0].prepare([]byte(`{"action": "deny"}`))
	if err != nil {
		t.Fatal(err)
	}
	review, err := worker.ParseReview(reviewText(t, read(c.Object)), worker.WithPrepared(prepared))
	if err != nil {
		t.Fatal(err)
	}
	policy := s.policy(s.constraints[0])
	return func() error { return policy(t.Context(), review) }
}

// between is before each violation of a constraint but the first.
var between = regexp.MustCompile(`\n\[[^]]+\]`)

// check compares the answers of the constraint with the assertions.
func (c *suiteCase) check(t *testing.T, folder string, files ...string) {
	t.Helper()
	var found []string
	var denial *worker.Denial
	if err := c.review(t, folder, files...)(); errors.As(err, &denial) && denial.Code == 403 {
		found = between.Split(denial.Message, -1)
	} else if err != nil {
		t.Errorf("%s, %s: %v", folder, c.Name, err)
	}
	for _, asserted := range c.Assertions {
		count := 0
		for _, message := range found {
			if matched, err := regexp.MatchString(asserted.Message, message); err != nil || matched {
				count++
			}
		}
		switch expected := asserted.Violations.(type) {
		case float64:
			if count != int(expected) {
				t.Errorf("%s, %s: got %q, expected %v", folder, c.Name, found, expected)
			}
		default:
			if none := expected == false || expected == "no"; none != (count == 0) {
				t.Errorf("%s, %s: got %q, expected %v with %q", folder, c.Name, found, expected, asserted.Message)
			}
		}
	}
}

// reviewText returns the JSON of an AdmissionReview, or one of the object.
func reviewText(t testing.TB, text string) []byte {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	document := object.Object
	if object.GetKind() != "AdmissionReview" {
		kind := object.GroupVersionKind()
		document = map[string]any{"request": map[string]any{
			"kind":      map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind},
			"namespace": object.GetNamespace(), "name": object.GetName(), "object": object.Object,
		}}
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}
