package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	expansionunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/expansion/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/expansion"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxExpansionDepth is the limit of Gatekeeper (gatekeeper:pkg/expansion/system.go).
const maxExpansionDepth = 30

// Bounds of what one object generates: two templates for each kind of a chain would make 2^30 objects. A resultant is at most as
// large as the object. Gatekeeper has no limit.
const (
	maxResultants     = 1000
	maxResultantBytes = 16 << 20
)

// tooManyResultants is a failure, and no denial as other errors of expansion: nothing is wrong with the object.
type tooManyResultants struct{ limit int }

func (e tooManyResultants) Error() string {
	return fmt.Sprintf("the object generates more than %d others", e.limit)
}

// expander makes the objects that an object generates, such as the Pod of a Deployment.
type expander interface {
	// expand returns the resultants, each mutated. An error of ctx means that the time is over.
	expand(ctx context.Context, base *mutationtypes.Mutable) ([]*expansion.Resultant, error)
}

// expansionSet has the ExpansionTemplates of one set of documents; it does not change.
type expansionSet struct {
	// templates has those that are applied, by the kind that they apply to and sorted by name.
	templates map[schema.GroupVersionKind][]expandedTemplate
	mutators  *mutatorSet
	// conflicts has a line for each one that is left out.
	conflicts []string
}

// expandedTemplate is one ExpansionTemplate in a system of its own, that makes one resultant and mutates nothing. A system with
// all templates mutates with a context of its own (gatekeeper:pkg/expansion/system.go), in which mutators and providers
// know no deadline, and applies templates in random order.
type expandedTemplate struct {
	name   string
	system *expansion.System
}

// newExpansionSet returns the ExpansionTemplates of the documents, and a problem for each that is not valid. Those that
// form a cycle are left out, as in Gatekeeper. Other documents are passed over.
func newExpansionSet(objects []document, applied *mutatorSet) (*expansionSet, []error) {
	made := &expansionSet{templates: make(map[schema.GroupVersionKind][]expandedTemplate), mutators: applied}
	var problems []error
	whole := expansion.NewSystem(nil)
	read, places := make(map[string]*expansionunversioned.ExpansionTemplate), make(map[string]document)
	for _, object := range objects {
		if object.GroupVersionKind().Group != expansionGroup {
			continue
		}
		found := &expansionunversioned.ExpansionTemplate{}
		err := convert(object, found)
		if err == nil {
			err = expansion.ValidateTemplate(found)
		}
		if before, isKnown := places[found.Name]; err == nil && isKnown {
			err = fmt.Errorf("the same ExpansionTemplate stands in %s", before.Place)
		}
		if err != nil {
			problems = append(problems, problem(object, err))
			continue
		}
		// The error says that it forms a cycle; cycles are complete only after the last template.
		_ = whole.UpsertTemplate(found)
		read[found.Name], places[found.Name] = found, object
	}
	cyclic := whole.GetConflicts()
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if cyclic[expansion.TemplateID(name)] {
			made.conflicts = append(made.conflicts, fmt.Sprintf(
				"%s: ExpansionTemplate/%s is left out, as are all that generate in a cycle: %s",
				places[name].Place, name, cycleNames(cyclic)))
			continue
		}
		single := expansion.NewSystem(nil)
		if err := single.UpsertTemplate(read[name]); err != nil {
			problems = append(problems, problem(places[name], err))
			continue
		}
		for _, kind := range generatorKinds(read[name]) {
			made.templates[kind] = append(made.templates[kind], expandedTemplate{name: name, system: single})
		}
	}
	return made, problems
}

func (e *expansionSet) expand(ctx context.Context, base *mutationtypes.Mutable) ([]*expansion.Resultant, error) {
	if len(e.templates[base.Object.GroupVersionKind()]) == 0 {
		return e.expandAt(ctx, base, 0, new(int))
	}
	text, err := base.Object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	limit := max(1, min(maxResultants, maxResultantBytes/len(text)))
	left := limit
	made, err := e.expandAt(ctx, base, 0, &left)
	if left < 0 {
		return nil, tooManyResultants{limit}
	}
	return made, err
}

// expandAt expands recursively: first what the resultants generate, then the resultants, as in Gatekeeper. left is how many
// more may be made.
func (e *expansionSet) expandAt(
	ctx context.Context, base *mutationtypes.Mutable, depth int, left *int,
) ([]*expansion.Resultant, error) {
	if depth >= maxExpansionDepth {
		return nil, fmt.Errorf("maximum recursion depth of %d reached", maxExpansionDepth)
	}
	kind := base.Object.GroupVersionKind()
	if kind.Empty() {
		return nil, fmt.Errorf("cannot expand resource %s with empty GVK", base.Object.GetName())
	}
	var own []*expansion.Resultant
	for _, applied := range e.templates[kind] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		made, err := applied.system.Expand(base)
		if err != nil {
			return nil, err
		}
		if *left -= len(made); *left < 0 {
			return nil, tooManyResultants{}
		}
		own = append(own, made...)
	}
	for _, resultant := range own {
		if _, err := e.mutators.apply(ctx, generated(base, resultant, mutationtypes.SourceTypeGenerated)); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("failed to mutate resultant resource %s: %w", resultant.Obj.GetName(), err)
		}
	}
	var all []*expansion.Resultant
	for _, resultant := range own {
		further, err := e.expandAt(ctx, generated(base, resultant, base.Source), depth+1, left)
		if err != nil {
			return nil, err
		}
		all = append(all, further...)
	}
	return append(all, own...), nil
}

func generated(base *mutationtypes.Mutable, made *expansion.Resultant, source mutationtypes.SourceType) *mutationtypes.Mutable {
	return &mutationtypes.Mutable{
		Object: made.Obj, Namespace: base.Namespace, Username: base.Username, Source: source,
	}
}

// generatorKinds returns the kinds that a template applies to, each once.
func generatorKinds(read *expansionunversioned.ExpansionTemplate) []schema.GroupVersionKind {
	kinds := make(map[schema.GroupVersionKind]bool)
	for _, applied := range read.Spec.ApplyTo {
		for _, kind := range applied.Flatten() {
			kinds[kind] = true
		}
	}
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
}

func cycleNames(cyclic expansion.IDSet) string {
	var names []string
	for name := range cyclic {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return listed(names)
}
