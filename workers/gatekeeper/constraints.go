package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"admission-gateway.io/gatekeeper/internal/prepared"
	apiconstraints "github.com/open-policy-agent/frameworks/constraint/pkg/apis/constraints"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/match"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Actions of constraints.
const (
	deny   = string(util.Deny)
	warn   = string(util.Warn)
	dryrun = string(util.Dryrun)
)

// constraint is a constraint that can be evaluated. It does not change.
type constraint struct {
	template *template
	object   *unstructured.Unstructured
	// parameters are what Rego gets.
	parameters *ast.Term
	// match is nil if all objects match.
	match *match.Match
	// action is the enforcementAction, and actions are those of them that the webhook has to take: none for an action
	// that Gatekeeper does not know.
	action  string
	actions []string
	// isElsewhere is set if its scoped actions are for other enforcement points: the webhook does not evaluate it.
	isElsewhere bool
	turns       turns
}

// name returns the name of the policy.
func (c *constraint) name() string { return policyName(c.object) }

func policyName(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// constraintKey identifies a constraint by its content.
type constraintKey struct {
	template *template
	content  contentHash
}

// constraintCache has constraints that were checked before.
type constraintCache map[constraintKey]*constraint

// check returns the constraint of a document, checked before if it has not changed, and keeps it in next. The error is
// Gatekeeper's.
func (c constraintCache) check(of *template, object document, next constraintCache) (*constraint, error) {
	key := constraintKey{of, hashOf(object)}
	found := c[key]
	if found == nil {
		made, err := of.newConstraint(object.Unstructured)
		if err != nil {
			return nil, err
		}
		found = made
	}
	next[key] = found
	return found, nil
}

// newConstraint checks a constraint as Gatekeeper does, and prepares its evaluation.
func (t *template) newConstraint(object *unstructured.Unstructured) (*constraint, error) {
	object = object.DeepCopy()
	unstructured.RemoveNestedField(object.Object, "status")
	if err := t.client.ValidateConstraint(object); err != nil {
		return nil, err
	}
	defaulting.Default(object.Object, t.schema)
	made := &constraint{template: t, object: object}
	if !t.asksProviders {
		made.turns = newTurns()
	}
	named, err := made.findActions()
	if err != nil {
		return nil, err
	}
	for _, each := range []string{deny, warn, dryrun} {
		if slices.Contains(named, each) {
			made.actions = append(made.actions, each)
		}
	}
	if made.match, err = matchOf(object); err != nil {
		return nil, err
	}
	parameters, _, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "parameters")
	if err != nil {
		return nil, fmt.Errorf("%w: %v", apiconstraints.ErrInvalidConstraint, err)
	}
	made.parameters, err = prepared.NewParameters(parameters)
	return made, err
}

// findActions finds the enforcementAction, and returns what is to be done for the webhook (gatekeeper:pkg/webhook/policy.go).
func (c *constraint) findActions() (named []string, err error) {
	if c.action, err = apiconstraints.GetEnforcementAction(c.object); err != nil {
		return nil, err
	}
	if !apiconstraints.IsEnforcementActionScoped(c.action) {
		return []string{c.action}, nil
	}
	scoped, err := apiconstraints.GetEnforcementActionsForEP(c.object, []string{util.WebhookEnforcementPoint})
	named = scoped[util.WebhookEnforcementPoint]
	c.isElsewhere = len(named) == 0
	return named, err
}

// matchOf returns spec.match, nil without one (gatekeeper:pkg/target/target.go).
func matchOf(object *unstructured.Unstructured) (*match.Match, error) {
	found, _, err := unstructured.NestedMap(object.Object, "spec", "match")
	if err != nil || found == nil {
		return nil, err
	}
	text, err := json.Marshal(found)
	if err != nil {
		return nil, err
	}
	made := &match.Match{}
	if err := json.Unmarshal(text, made); err != nil {
		return nil, fmt.Errorf("%w: %w: %v", apiconstraints.ErrInvalidConstraint, target.ErrCreatingMatcher, err)
	}
	return made, nil
}

// withParameters returns the constraint with other parameters, which the schema of the template has to permit.
func (c *constraint) withParameters(parameters map[string]any) (*constraint, error) {
	changed := c.object.DeepCopy()
	if err := unstructured.SetNestedMap(changed.Object, parameters, "spec", "parameters"); err != nil {
		return nil, err
	}
	made, err := c.template.newConstraint(changed)
	if err != nil {
		return nil, err
	}
	made.turns = c.turns
	return made, nil
}

// served is a constraint for which calls come, or why they fail.
type served struct {
	name        string
	description string
	version     contentHash
	// constraint is nil if it cannot be evaluated.
	constraint *constraint
	err        error
}

// constraintsOf returns the constraints of the documents sorted by the names of their policies, what to keep of the cache,
// and a problem for each that cannot be evaluated.
func constraintsOf(
	objects []document, templates map[string]*template, before constraintCache,
) ([]served, constraintCache, []error) {
	var found []served
	var problems []error
	next := make(constraintCache)
	places := make(map[string]string)
	for _, object := range objects {
		if object.GroupVersionKind().Group != constraintsGroup {
			continue
		}
		name := policyName(object.Unstructured)
		if place, isKnown := places[name]; isKnown {
			problems = append(problems, problem(object, fmt.Errorf("the same constraint stands in %s", place)))
			continue
		}
		places[name] = object.Place
		made := served{name: name, version: hashOf(object)}
		if of := templates[object.GetKind()]; of == nil {
			made.err = missingTemplate(object.GetKind())
		} else {
			made.description = of.description
			made.constraint, made.err = before.check(of, object, next)
		}
		if made.err != nil {
			problems = append(problems, problem(object, made.err))
		}
		if isPrintable(name) {
			found = append(found, made)
		}
	}
	slices.SortFunc(found, func(a, b served) int { return strings.Compare(a.name, b.name) })
	return found, next, problems
}

func isPrintable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}
