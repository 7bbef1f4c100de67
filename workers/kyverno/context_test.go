package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"admission-gateway.io/worker"
)

// asks is a rule with a context entry, that denies if its value is not "good".
func asks(entry, value string) string {
	return rules("asks", enforce, `name: check
context: [`+entry+`]
validate: {message: "found {{ `+value+` }}", deny: {conditions: {any: [{key: "{{ `+value+` }}", operator: NotEquals, value: good}]}}}`)
}

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop, labels: {app: web}}
data: {value: good}`

func TestContextEntriesOfAFolder(t *testing.T) {
	global := `
apiVersion: kyverno.io/v2
kind: GlobalContextEntry
metadata: {name: maps}
spec:
  kubernetesResource: {version: v1, resource: configmaps}
  projections: [{name: first, jmesPath: "[0].data.value"}]`
	for name, entry := range map[string]string{
		"variable":   "{name: found, variable: {value: good}}",
		"configMap":  "{name: map, configMap: {name: settings, namespace: shop}}, {name: found, variable: {jmesPath: map.data.value}}",
		"object":     `{name: found, apiCall: {urlPath: "/api/v1/namespaces/{{ request.namespace }}/configmaps/settings", jmesPath: data.value}}`,
		"list":       `{name: found, apiCall: {urlPath: "/api/v1/configmaps?labelSelector=app=web", jmesPath: "items[0].data.value"}}`,
		"projection": `{name: found, globalReference: {name: maps.first}}`,
	} {
		s, said := stateOf(t, asks(entry, "found"), settings, global)
		if got := s.called(t, "asks/check", pod("", running), ""); got.err != nil || got.message != "" || len(said) > 0 {
			t.Errorf("%s: got %+v, %q", name, got, said)
		}
		s, _ = stateOf(t, asks(entry, "found"), strings.ReplaceAll(settings, "good", "bad"), global)
		if got := s.called(t, "asks/check", pod("", running), ""); name != "variable" && got.err == nil && got.code != 400 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestWhatIsNotAllowedIsRefused(t *testing.T) {
	for entry, want := range map[string]string{
		`{name: found, apiCall: {service: {url: "http://127.0.0.1:1/"}, method: GET}}`: "without --service-url",
		`{name: found, imageRegistry: {reference: "registry.test/shop/web:1"}}`:        "--registry registry.test",
		`{name: found, apiCall: {urlPath: /api/v1/configmaps, method: POST}}`:          "GET only",
		`{name: found, apiCall: {urlPath: /version}}`:                                  "do not have the path",
		`{name: found, globalReference: {name: none}}`:                                 "key=none",
	} {
		s, _ := stateOf(t, asks(entry, "found"))
		if got := s.called(t, "asks/check", pod("", running), ""); got.err == nil || !strings.Contains(got.err.Error(), want) {
			t.Errorf("%s: got %+v, expected %s", entry, got, want)
		}
	}
}

func TestAServiceThatIsAllowed(t *testing.T) {
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://localhost:1/", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, `"good"`)
	}))
	defer served.Close()
	p := newProgram(worker.NewServer(), log.New(io.Discard, "", 0))
	p.access.services = []string{served.URL}
	if err := p.access.begin(); err != nil {
		t.Fatal(err)
	}
	for path, isGood := range map[string]bool{"/": true, "/away": false} {
		s, _ := p.stateOf(objectsOf(t, asks(`{name: found, apiCall: {method: GET, service: {url: "`+served.URL+path+`"}}}`, "found")))
		if got := s.called(t, "asks/check", pod("", running), ""); (got.err == nil && got.code == 0) != isGood {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	p.access.services = []string{"example.test"}
	if err := p.access.begin(); err == nil {
		t.Error("a URL without a scheme is accepted")
	}
}

func TestValuesOfATest(t *testing.T) {
	values := `
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
metadata: {name: values}
globalValues: {request.namespace: other}
policies:
- name: asks
  rules: [{name: check, values: {found: good}}]
  resources: [{name: web, values: {request.object.metadata.labels.team: a}}]
namespaceSelector: [{name: shop, labels: {tier: gold}}]`
	s, said := stateOf(t, asks(`{name: found, apiCall: {urlPath: "/api/v1/x"}}`, "found"), values,
		rules("labels", enforce, needsTeam))
	if got := s.called(t, "asks/check", pod("", running), ""); got.err != nil || got.code != 0 || len(said) > 0 {
		t.Errorf("got %+v, %q", got, said)
	}
	if got := s.called(t, "labels/team", pod("", running), ""); got.code != 400 {
		t.Errorf("got %+v", got)
	}
	review, err := worker.ParseReview([]byte(deployment(running)), worker.WithPrepared(""))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.validate(&s.served[1])(t.Context(), review)
	if got := review.Annotations(); got["status"] != "fail" || got["rule"] != "autogen-team" {
		t.Errorf("got %v", got)
	}
	user := `
apiVersion: cli.kyverno.io/v1alpha1
kind: UserInfo
metadata: {name: user}
clusterRoles: [admin]
userInfo: {username: bob}`
	s, said = stateOf(t, strings.Replace(rules("labels", enforce, needsTeam), "any: [{", "any: [{clusterRoles: [admin], ", 1), user)
	if got := s.called(t, "labels/team", pod("", running), ""); got.code != 400 || len(said) > 0 {
		t.Errorf("got %+v, %q", got, said)
	}
}

// A policy that cannot be used any more keeps its last good version; the others change.
func TestABadPolicyCostsItselfOnly(t *testing.T) {
	var logged strings.Builder
	p := newProgram(worker.NewServer(), log.New(&logged, "", 0))
	if err := p.apply(objectsOf(t, rules("a", enforce, needsTeam), rules("b", enforce, needsTeam))); err != nil {
		t.Fatal(err)
	}
	changed := objectsOf(t, rules("a", "nonsense: 1", needsTeam), rules("b", "emitWarning: true", needsTeam))
	for range 2 {
		if err := p.apply(changed); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(logged.String(), "its last good version stays") != 1 {
		t.Errorf("got %s", logged.String())
	}
	s, _ := p.stateOf(changed)
	if got := s.called(t, "a/team", pod("", running), ""); got.code != 400 {
		t.Errorf("got %+v", got)
	}
	if got := s.called(t, "b/team", pod("", running), ""); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestATurnThatDoesNotComeIsAFailure(t *testing.T) {
	s, _ := stateOf(t, rules("labels", enforce, needsTeam))
	for range cap(s.turns) {
		s.turns <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	review, err := worker.ParseReview([]byte(pod("", running)), worker.WithPrepared(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.validate(&s.served[0])(ctx, review); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// All pairs of the containers would take hours.
func TestTheDeadlineOfTheCallEndsAList(t *testing.T) {
	const list = "list: request.object.spec.containers"
	pairs := "[{" + list + ", foreach: [{" + list + ", foreach: [{" + list + ", %s}]}]}]"
	s, _ := stateOf(t, rules("pairs", enforce,
		"name: validates\nvalidate: {message: x, foreach: "+fmt.Sprintf(pairs, `deny: {conditions: {any: [{key: "{{ element.name }}", operator: Equals, value: x}]}}`)+"}",
		"name: mutates\nmutate: {foreach: "+fmt.Sprintf(pairs, `patchStrategicMerge: {metadata: {labels: {"{{ element.name }}": x}}}`)+"}"))
	object := pod("", `{"containers": [`+strings.TrimSuffix(strings.Repeat(`{"name": "a"},`, 1000), ",")+"]}")
	for index, policy := range []worker.PolicyFunc{s.validate(&s.served[0]), s.mutate(&s.served[1])} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		review, err := worker.ParseReview([]byte(object), worker.WithPrepared(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := policy(ctx, review); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v", s.served[index].name, err)
		}
		cancel()
	}
}

func TestAPolicyThatDoesNotEndLeavesTurnsToOthers(t *testing.T) {
	s, _ := stateOf(t, rules("labels", enforce, needsTeam))
	ends := make(chan struct{})
	var begun atomic.Int32
	stuck := s.evaluation(nil, func(context.Context, *worker.Review, *request) error {
		begun.Add(1)
		<-ends
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	for range 2 * cap(s.turns) {
		review, err := worker.ParseReview([]byte(pod("", running)), worker.WithPrepared(""))
		if err != nil {
			t.Fatal(err)
		}
		calls.Go(func() { _ = stuck(ctx, review) })
	}
	<-ctx.Done()
	if got := s.called(t, "labels/team", pod("", running), ""); got.code != 400 {
		t.Errorf("got %+v", got)
	}
	if most := int32(cap(s.turns) / 4); begun.Load() > most {
		t.Errorf("got %d, expected at most %d", begun.Load(), most)
	}
	close(ends)
	calls.Wait()
}

func TestAFloodOfMessagesIsCut(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	var texts []string
	for range 150 {
		texts = append(texts, long)
	}
	if got := bounded(texts); len(got) != maxMessages+1 || len(got[0]) > maxMessageBytes+3 || got[maxMessages] != "and 50 more" {
		t.Errorf("got %d lines", len(got))
	}
}
