package main

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"admission-gateway.io/worker"
)

// drawnPolicies draws ClusterPolicies and Policies, whose names are often equal to parts of other names.
func drawnPolicies(random *rand.Rand) []string {
	names := []string{"a", "a", "b", "b", "mutation", "not a name"}
	rulesOf := []string{"b", "c", "mutation", "b/c", "b/c", "", "two\\nlines", strings.Repeat("x", 64)}
	bodies := []string{
		"validate: {failureAction: Enforce, message: needs a team, pattern: {metadata: {labels: {team: \"?*\"}}}}",
		"mutate: {patchStrategicMerge: {metadata: {labels: {team: web}}}}",
		"verifyImages: [{imageReferences: [\"*\"], attestors: [{entries: [{keys: {publicKeys: abc}}]}]}]",
		"validate: {nonsense: 1}",
		"validate: {message: refused, deny: {conditions: {any: [{key: \"{{ nothing\", operator: Equals, value: 1}]}}}",
		"nonsense: 1",
	}
	// Most rules are good: one that is not has its whole document refused.
	for range 4 {
		bodies = append(bodies, bodies[:2]...)
	}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	found := make(map[string]string)
	for range 1 + random.IntN(8) {
		kind, namespace := "ClusterPolicy", ""
		if random.IntN(2) == 0 {
			kind, namespace = "Policy", pick([]string{"a", "shop"})
		}
		name := pick(names)
		text := fmt.Sprintf("apiVersion: kyverno.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %q}\nspec:\n  applyRules: %s\n  rules:\n",
			kind, name, namespace, pick([]string{"All", "One"}))
		for range 1 + random.IntN(3) {
			text += fmt.Sprintf("  - name: \"%s\"\n    match: {any: [{resources: {kinds: [Pod]}}]}\n    %s\n", pick(rulesOf), pick(bodies))
		}
		found[kind+"/"+namespace+"/"+name] = text
	}
	texts := make([]string, 0, len(found))
	for _, text := range found {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts
}

// Whatever documents have as names, all policies of the worker have different names that the SDK takes, and a document changes
// nothing of what the policies of others answer.
func TestADocumentChangesNoOther(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	served := func(texts []string) map[string]answered {
		p := newProgram(worker.NewServer(), log.New(io.Discard, "", 0))
		if err := p.apply(objectsOf(t, texts...)); err != nil {
			t.Fatalf("%v in\n%s", err, strings.Join(texts, "\n---\n"))
		}
		s, _ := p.stateOf(objectsOf(t, texts...))
		answers := make(map[string]answered)
		for _, one := range s.served {
			got := s.called(t, one.name, pod("", running), "")
			if got.err != nil {
				got.message, got.err = got.err.Error(), nil
			}
			answers[one.name] = got
		}
		if len(answers) != len(s.served) {
			t.Fatalf("names are not unique in\n%s", strings.Join(texts, "\n---\n"))
		}
		return answers
	}
	for range 400 {
		texts := drawnPolicies(random)
		all := served(texts)
		count := 0
		for index := range texts {
			alone := served(texts[index : index+1])
			count += len(alone)
			for name, got := range alone {
				if !reflect.DeepEqual(all[name], got) {
					t.Fatalf("%s: alone %+v, beside others %+v in\n%s", name, got, all[name], strings.Join(texts, "\n---\n"))
				}
			}
		}
		if count != len(all) {
			t.Fatalf("documents alone have %d policies, together %d in\n%s", count, len(all), strings.Join(texts, "\n---\n"))
		}
	}
}

func TestNamesThatNoPolicyCanHave(t *testing.T) {
	s, said := stateOf(t,
		rules("a", enforce, needsTeam, strings.Replace(needsTeam, "name: team", "name: b/c", 1), strings.Replace(needsTeam, "name: team", `name: "two\nlines"`, 1)),
		rules("validation", "applyRules: One", needsTeam),
		rules("b_c", enforce, needsTeam))
	want := []string{
		`text: "a/b/c" has no policy of its own, only those of all rules have it: name of a rule: found "b/c", expected printable text without a slash`,
		`text: "a/two\nlines" has no policy of its own, only those of all rules have it: name of a rule: found "two\nlines", expected printable text without a slash`,
		`text: ClusterPolicy b_c: metadata.name: found "b_c", expected a name of Kubernetes: `,
		`text: "validation" has no policy of its own, only those of all rules have it: a ClusterPolicy with applyRules: One: found the name validation, ` +
			`expected another one, because the worker's own policy of all rules has it`,
	}
	if !slices.EqualFunc(said, want, strings.HasPrefix) {
		t.Errorf("got %q", said)
	}
	if got := namesOf(s); !slices.Equal(got, []string{"a/team"}) {
		t.Errorf("got %q", got)
	}
	// They are evaluated with all rules.
	if got := s.called(t, "validation", pod("", running), ""); got.code != 400 || !strings.Contains(got.message, "b/c:") {
		t.Errorf("got %+v", got)
	}
}
