package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"admission-gateway.io/worker"
)

func TestDocumentsOfGatekeeperAreChecked(t *testing.T) {
	s := stateOf(t, needsLabel)
	config := `
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: {name: NAME}`
	for name, row := range map[string]struct {
		text, message string
		code          int
	}{
		"a constraint":             {owners, "", 0},
		"its parameters":           {brokenOwner, "schema validation failed", 422},
		"its action":               {constraintText("NeedsLabel", "a", "{enforcementAction: odd}"), "unrecognized enforcementAction", 500},
		"its template":             {constraintText("Missing", "a", "{}"), "no usable ConstraintTemplate", 422},
		"a template":               {sameLabel, "", 0},
		"its Rego":                 {brokenRego, "rego_parse_error", 422},
		"its name":                 {strings.Replace(needsLabel, "name: needslabel", "name: other", 1), "is not equal to the lowercase", 422},
		"a long name":              {constraintText("NeedsLabel", strings.Repeat("a", 64), "{}"), "larger than 63", 500},
		"a Config":                 {strings.Replace(config, "NAME", "config", 1), "", 0},
		"a Config of another name": {strings.Replace(config, "NAME", "other", 1), `has the name "config"`, 422},
		"an ExpansionTemplate":     {podsOfDeployments, "", 0},
		"one without a source":     {strings.Replace(podsOfDeployments, "spec.template", "", 1), "empty source field", 422},
		"a mutator":                {assign("a", "spec.x", "1"), "", 0},
		"its location":             {assign("a", "spec.[", "1"), "location", 422},
	} {
		object := parse(t, strings.TrimSuffix(strings.TrimSpace(row.text), "---"))[0]
		kind := object.GroupVersionKind()
		for _, operation := range []string{"CREATE", "DELETE"} {
			text, _ := json.Marshal(map[string]any{
				"operation": operation, "name": object.GetName(), "object": object.Object, "oldObject": object.Object,
				"kind": map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind},
			})
			_, err := call(t, s, "validation", string(text), "{}")
			var denial *worker.Denial
			switch {
			case row.code == 0 || operation == "DELETE":
				if err != nil {
					t.Errorf("%s, %s: got %v", name, operation, err)
				}
			case !errors.As(err, &denial) || denial.Code != row.code || !strings.Contains(denial.Message, row.message):
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}
