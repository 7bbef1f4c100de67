package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"admission-gateway.io/gatekeeper/internal/prepared"
	"admission-gateway.io/worker"
	clienterrors "github.com/open-policy-agent/frameworks/constraint/pkg/client/errors"
	"github.com/open-policy-agent/frameworks/constraint/pkg/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/match"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// violation is one result of a constraint.
type violation struct {
	constraint *constraint
	message    string
	// action is the enforcementAction, and actions are what is done.
	action  string
	actions []string
}

// review evaluates the policy of one constraint.
func (s *state) review(ctx context.Context, review *worker.Review, c *constraint, action string) error {
	asked := s.derive(ctx, review)
	if asked.err != nil || asked.isSkipped {
		return asked.err
	}
	if c.isElsewhere && action == "" {
		return nil
	}
	selected := s.selectFor(asked, []*constraint{c})
	// A review that the constraint does not match does not wait for those that it evaluates.
	if slices.ContainsFunc(selected, selection.isEvaluated) {
		leave, err := c.turns.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		var begun *guarded
		ctx, begun = s.guard.begin(ctx)
		defer s.guard.end(begun)
	}
	violations, err := s.evaluate(ctx, asked, selected)
	if err != nil {
		return queryFailed(ctx, asked, err, slices.Contains(c.actions, deny) && action == "" || action == deny)
	}
	if action != "" {
		for index := range violations {
			violations[index].actions = []string{action}
		}
	}
	return answer(review, violations)
}

// reviewAll evaluates all constraints, as Gatekeeper's webhook does.
func (s *state) reviewAll(ctx context.Context, review *worker.Review) error {
	asked := s.derive(ctx, review)
	if asked.admission != nil && !isOwnRequest(asked.admission) {
		if err := s.checkOwn(asked.admission); err != nil {
			return err
		}
	}
	if asked.err != nil || asked.isSkipped {
		return asked.err
	}
	leave, err := s.turns.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, begun := s.guard.begin(ctx)
	defer s.guard.end(begun)
	var violations []violation
	for _, ofTemplate := range s.byTemplate {
		found, err := s.evaluate(ctx, asked, s.selectFor(asked, ofTemplate))
		if err != nil {
			return queryFailed(ctx, asked, err, true)
		}
		violations = append(violations, found...)
	}
	return answer(review, violations)
}

// queryFailed returns what an error of a driver is, such as a message that is not a string: a denial by Gatekeeper. For a
// constraint that does not deny it is a failure, as is what would have made too much.
func queryFailed(ctx context.Context, asked *request, err error, denies bool) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !denies, errors.As(err, new(*prepared.Excess)):
		return err
	}
	return failed(fmt.Errorf("error reviewing resource %s: %w", asked.admission.Name, err))
}

// selection has the constraints of one template that match one subject.
type selection struct {
	subject  *subject
	matching []*constraint
	// violations are those of constraints of which it is not known whether they match.
	violations []violation
}

func (s selection) isEvaluated() bool { return len(s.matching) > 0 }

// selectFor returns which constraints of one template match which subjects.
func (s *state) selectFor(asked *request, constraints []*constraint) []selection {
	found := make([]selection, 0, len(asked.subjects))
	for _, reviewed := range asked.subjects {
		if !constraints[0].template.matchesOperation(reviewed.operation) {
			continue
		}
		selected := selection{subject: reviewed}
		for _, c := range constraints {
			isMatched, err := s.matches(c, asked, reviewed)
			switch {
			case err != nil:
				message := fmt.Sprintf("%v: %v", clienterrors.ErrAutoreject, err)
				selected.violations = append(selected.violations, reviewed.violation(c, message))
			case isMatched:
				selected.matching = append(selected.matching, c)
			}
		}
		found = append(found, selected)
	}
	return found
}

// evaluate returns the violations of what is selected, constraints of one template.
func (s *state) evaluate(ctx context.Context, asked *request, selected []selection) ([]violation, error) {
	var violations []violation
	for _, each := range selected {
		violations = append(violations, each.violations...)
		if !each.isEvaluated() {
			continue
		}
		results, err := s.drive(ctx, asked, each.subject, each.matching)
		switch {
		case ctx.Err() != nil:
			// The driver for CEL makes a violation of it.
			return nil, context.Cause(ctx)
		case err != nil:
			// As Gatekeeper's client does it.
			return nil, fmt.Errorf("%s: %s: %w", target.Name, each.matching[0].template.driver.Name(), err)
		}
		byName := make(map[string]*constraint, len(each.matching))
		for _, c := range each.matching {
			byName[c.object.GetName()] = c
		}
		for _, result := range results {
			violations = append(violations, each.subject.violation(byName[result.Constraint.GetName()], result.Msg))
		}
	}
	return violations, nil
}

// drive has the driver evaluate constraints of one template.
func (s *state) drive(ctx context.Context, asked *request, reviewed *subject, matching []*constraint) ([]*types.Result, error) {
	if inRego, ok := matching[0].template.driver.(*prepared.Driver); ok {
		input, err := reviewed.forRego()
		if err != nil {
			return nil, err
		}
		constraints := make([]prepared.Asked, len(matching))
		for index, c := range matching {
			constraints[index] = prepared.Asked{Constraint: c.object, Parameters: c.parameters}
		}
		return inRego.Evaluate(withProviders(ctx, s.providers), target.Name, constraints, input, s.inventory)
	}
	objects := make([]*unstructured.Unstructured, len(matching))
	for index, c := range matching {
		objects[index] = c.object
	}
	response, err := matching[0].template.driver.Query(ctx, target.Name, objects, reviewed.forCEL, asked.options...)
	if err != nil {
		return nil, err
	}
	return response.Results, nil
}

// violation returns a violation by the subject.
func (s *subject) violation(c *constraint, message string) violation {
	found := violation{constraint: c, message: message, action: c.action, actions: c.actions}
	if s.impliedBy != "" {
		found.message = fmt.Sprintf("[Implied by %s] %s", s.impliedBy, message)
	}
	if s.action != "" {
		found.action, found.actions = s.action, []string{s.action}
	}
	return found
}

// matches reports whether the constraint matches the object or the old object, as Gatekeeper's target does it: both
// are parsed once for all constraints here.
func (s *state) matches(c *constraint, asked *request, reviewed *subject) (bool, error) {
	switch {
	case c.match == nil:
		return true, nil
	case reviewed.parseErr != nil:
		return false, reviewed.parseErr
	}
	isPresent := false
	for _, object := range []*unstructured.Unstructured{reviewed.object, reviewed.oldObject} {
		if object == nil || object.Object == nil {
			continue
		}
		isPresent = true
		isMatched, err := match.Matches(c.match, &match.Matchable{
			Object: object, Namespace: asked.namespace, Source: reviewed.source,
		})
		if err != nil {
			return false, fmt.Errorf("%w: %v :%w", target.ErrMatching, object.GetName(), err)
		}
		if isMatched {
			return true, nil
		}
	}
	if !isPresent {
		return false, fmt.Errorf("%w: neither object nor old object are defined", target.ErrRequestObject)
	}
	return false, nil
}
