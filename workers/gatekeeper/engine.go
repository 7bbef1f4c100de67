package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"admission-gateway.io/gatekeeper/internal/prepared"
	"admission-gateway.io/worker"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// state is all that one set of documents says. It does not change: a call in flight keeps the state that it began with.
type state struct {
	constraints []served
	// templates are those that can be used, by the kind of their constraints.
	templates map[string]*template
	// byTemplate has the constraints that the webhook evaluates, those of a template together.
	byTemplate [][]*constraint
	inventory  *prepared.Inventory
	namespaces map[string]*corev1.Namespace
	excluder   *process.Excluder
	configured configuration
	providers  *providerSet
	mutators   *mutatorSet
	// alone has the mutators that are policies of their own, by name.
	alone map[string]*mutatorSet
	// expander is nil without ExpansionTemplates.
	expander expander
	// guard and turns are those of the engine; turns is for all constraints at once.
	guard *guard
	turns turns
	// conflicts has a line for each document that is left out because it contradicts others.
	conflicts []string
}

// engine serves the policies of the documents that it was given last.
type engine struct {
	server *worker.Server
	log    *log.Logger
	// templates and constraints are what the last documents have compiled to.
	templates   templateCache
	constraints constraintCache
	values      valueCache
	guard       *guard
	turns       turns
	// external is what the program says about external data, and providers are those that are served.
	external  *externalData
	providers *providerSet
	// extensions are those of the last documents.
	extensions *extensions
	// good has the last version of each document with which nothing was wrong.
	good map[identity]document
	// said is what was logged for the last documents.
	said []string
	// current is the state of calls that begin now.
	current atomic.Pointer[state]
}

func newEngine(server *worker.Server, logger *log.Logger) *engine {
	return &engine{
		server: server, log: logger, external: &externalData{log: logger}, good: make(map[identity]document),
		guard: newGuard(), turns: newTurns(),
	}
}

// load serves the documents. The error, if any, has all problems, a line each: nothing is served then.
func (e *engine) load(objects []document) error {
	made, problems := e.stateOf(objects)
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return e.serve(made, objects)
}

// reload serves the documents; one with a problem is replaced by its last good version. Without one, calls of its
// policy fail. The problems are logged.
func (e *engine) reload(objects []document) error {
	made, problems := e.stateOf(objects)
	if len(problems) == 0 {
		e.said = nil
		return e.serve(made, objects)
	}
	wrong := wrongOf(problems)
	kept := make([]document, 0, len(objects))
	for _, object := range objects {
		if before, isKnown := e.good[keyOf(object)]; isKnown && wrong[keyOf(object)] {
			object = before
		}
		kept = append(kept, object)
	}
	made, remaining := e.stateOf(kept)
	left := wrongOf(remaining)
	var said []string
	for _, each := range problems {
		effect := ""
		if object, isNamed := problemDocument(each); isNamed && !left[keyOf(object)] {
			effect = "; its last good version stays"
		}
		said = append(said, each.Error()+effect)
	}
	e.say(said)
	good := slices.DeleteFunc(kept, func(object document) bool { return left[keyOf(object)] })
	return e.serve(made, good)
}

// say logs what was not logged for the documents before: those of a cluster change often.
func (e *engine) say(lines []string) {
	for _, each := range lines {
		if !slices.Contains(e.said, each) {
			e.log.Printf("gatekeeper: %s", line(each))
		}
	}
	e.said = lines
}

// wrongOf returns which documents have problems.
func wrongOf(problems []error) map[identity]bool {
	wrong := make(map[identity]bool, len(problems))
	for _, each := range problems {
		if object, isNamed := problemDocument(each); isNamed {
			wrong[keyOf(object)] = true
		}
	}
	return wrong
}

// stateOf makes the state of documents, with a problem for each that cannot be used.
func (e *engine) stateOf(objects []document) (*state, []error) {
	configured, problems := configurationOf(objects)
	templates, compiled, wrong := templatesOf(objects, e.templates)
	problems = append(problems, wrong...)
	constraints, checked, wrong := constraintsOf(objects, templates, e.constraints)
	problems = append(problems, wrong...)
	known, wrong := inventoryOf(objects, configured, readInventory(templates), e.values)
	problems = append(problems, wrong...)
	e.extensions = extensionsOf(objects, e.external, e.providers, e.extensions)
	problems = append(problems, e.extensions.problems...)
	e.templates, e.constraints, e.values = compiled, checked, known.values
	made := &state{
		constraints: constraints, templates: templates, byTemplate: byTemplate(constraints), inventory: known.data,
		namespaces: known.namespaces, excluder: configured.excluder, configured: configured,
		guard: e.guard, turns: e.turns,
		providers: e.extensions.providers, mutators: e.extensions.mutators, alone: e.extensions.alone, conflicts: e.extensions.conflicts(),
	}
	if len(e.extensions.expansions.templates) > 0 {
		made.expander = e.extensions.expansions
	}
	return made, problems
}

// byTemplate groups the constraints that the webhook evaluates; they are sorted by kind.
func byTemplate(constraints []served) [][]*constraint {
	var groups [][]*constraint
	for _, each := range constraints {
		if each.constraint == nil || each.constraint.isElsewhere {
			continue
		}
		last := len(groups) - 1
		if last >= 0 && groups[last][0].template == each.constraint.template {
			groups[last] = append(groups[last], each.constraint)
		} else {
			groups = append(groups, []*constraint{each.constraint})
		}
	}
	return groups
}

// serve has calls use the state from now on, and remembers its good documents. The policies are replaced if they are others:
// the inventory of a cluster changes more often.
func (e *engine) serve(made *state, good []document) error {
	before := e.current.Swap(made)
	if before == nil || !made.hasPoliciesOf(before) {
		if err := e.server.Replace(func(set *worker.Set) { e.register(set, made) }); err != nil {
			e.current.Store(before)
			return err
		}
	}
	for _, conflict := range made.conflicts {
		if before == nil || !slices.Contains(before.conflicts, conflict) {
			e.log.Printf("gatekeeper: %s", conflict)
		}
	}
	e.providers.closeOthers(made.providers)
	e.providers = made.providers
	e.good = make(map[identity]document, len(good))
	for _, object := range good {
		e.good[keyOf(object)] = object
	}
	return nil
}

// hasPoliciesOf reports whether the policies are those of the other state.
func (s *state) hasPoliciesOf(other *state) bool {
	return s.mutators.description() == other.mutators.description() &&
		slices.Equal(s.namesAlone(), other.namesAlone()) &&
		slices.EqualFunc(s.constraints, other.constraints, func(a, b served) bool {
			return a.name == b.name && a.version == b.version && a.constraint == b.constraint && a.about() == b.about()
		})
}

// register registers the policies of a state.
func (e *engine) register(set *worker.Set, made *state) {
	for _, each := range made.constraints {
		set.Policy(each.name, each.about(),
			func(ctx context.Context, review *worker.Review) error {
				return e.current.Load().policy(each)(ctx, review)
			},
			worker.WithVersion(hex.EncodeToString(each.version[:8])), worker.WithParameters(constraintSchema, each.prepare))
	}
	set.Policy("validation", "All constraints at once, as Gatekeeper's webhook evaluates them.",
		func(ctx context.Context, review *worker.Review) error { return e.current.Load().reviewAll(ctx, review) })
	set.MutatingPolicy(mutationName, line(made.mutators.description()),
		func(ctx context.Context, review *worker.Review) error {
			current := e.current.Load()
			return current.mutation(current.mutators).review(ctx, review)
		})
	for _, name := range made.namesAlone() {
		set.MutatingPolicy(name, "One mutator of Gatekeeper, which has a rollout.",
			func(ctx context.Context, review *worker.Review) error {
				current := e.current.Load()
				mutators, isThere := current.alone[name]
				if !isThere {
					return errors.New("the mutator is gone, or has no rollout any more")
				}
				return current.mutation(mutators).review(ctx, review)
			})
	}
}

// mutationName is the policy of all mutators that have no rollout of their own.
const mutationName = "mutation"

// mutation returns the policy of the mutators.
func (s *state) mutation(mutators *mutatorSet) *mutationPolicy {
	return &mutationPolicy{mutators: mutators, excluder: s.excluder, namespaces: s.namespaces}
}

// namesAlone returns the names of the policies of single mutators, sorted.
func (s *state) namesAlone() []string { return slices.Sorted(maps.Keys(s.alone)) }

// about is the description of a policy.
func (s *served) about() string {
	if s.err != nil {
		return "Cannot be evaluated: " + line(s.err.Error())
	}
	return line(s.description)
}

// line is the text as one line.
func line(text string) string { return cut(strings.Join(strings.Fields(text), " ")) }

// constraintSchema is the JSON Schema of the parameters of a constraint's policy.
const constraintSchema = `{"type": "object", "additionalProperties": false, "properties": {` +
	`"action": {"type": "string", "enum": ["deny", "warn", "audit"]}, "parameters": {"type": "object"}}}`

// settings are the parameters of a constraint's policy.
type settings struct {
	constraint *constraint
	// action replaces the enforcementAction; empty: it does not.
	action string
}

// prepare makes the settings. The parameters have to be as the schema of the template says.
func (s *served) prepare(text json.RawMessage) (any, error) {
	var given struct {
		Action     *string        `json:"action"`
		Parameters map[string]any `json:"parameters"`
	}
	if err := utiljson.Unmarshal(text, &given); err != nil {
		return nil, err
	}
	made := &settings{constraint: s.constraint}
	if given.Action != nil {
		switch *given.Action {
		case deny, warn:
			made.action = *given.Action
		case "audit":
			made.action = dryrun
		default:
			return nil, fmt.Errorf(`action: found %q, expected "deny", "warn" or "audit"`, *given.Action)
		}
	}
	if given.Parameters == nil || s.err != nil {
		return made, nil
	}
	var err error
	made.constraint, err = s.constraint.withParameters(given.Parameters)
	return made, err
}

// policy returns the function of a constraint's policy.
func (s *state) policy(of served) worker.PolicyFunc {
	return func(ctx context.Context, review *worker.Review) error {
		if of.err != nil {
			return of.err
		}
		applied := review.Parameters().(*settings)
		return s.review(ctx, review, applied.constraint, applied.action)
	}
}
