package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	mutationsunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// mutatorSet applies the mutators of one set of documents; it does not change.
type mutatorSet struct {
	system *mutation.System
	// running has the contexts of the calls of apply.
	running *running
	// turns bounds the calls of apply that run at a time.
	turns turns
	// count is the number of mutators that are applied.
	count int
	// conflicting has those that are left out, sorted, such as "Assign/image", and conflicts a line for each.
	conflicting, conflicts []string
}

// rolloutAnnotation says how far a mutator is in force. The gateway reads it, and calls the mutator as a policy of its own.
const rolloutAnnotation = "admission-gateway.io/rollout"

// byRollout returns the documents without the mutators that have a rollout, and these by the names of their policies, which
// begin with that of all mutators. Documents of one name are together, so that the second one is a problem.
func byRollout(objects []document) (together []document, alone map[string][]document) {
	alone = make(map[string][]document)
	for _, object := range objects {
		_, hasRollout := object.GetAnnotations()[rolloutAnnotation]
		if hasRollout && object.GroupVersionKind().Group == mutationsGroup {
			name := mutationName + "/" + object.GetKind() + "/" + object.GetName()
			alone[name] = append(alone[name], object)
		} else {
			together = append(together, object)
		}
	}
	return together, alone
}

// newMutatorSet returns the mutators of the documents, and a problem for each that is not valid. Those whose schemas
// conflict are left out, as in Gatekeeper (gatekeeper:pkg/mutation/system.go). Documents that are not mutators are passed over.
func newMutatorSet(objects []document, named *providerSet) (*mutatorSet, []error) {
	made := &mutatorSet{running: &running{}, turns: newTurns()}
	made.system = mutation.NewSystem(mutation.SystemOpts{
		ProviderCache:                     named.engine,
		SendRequestToExternalDataProvider: named.send,
		// The certificate of a client is that of the provider's client; the system only requires a watcher.
		ClientCertWatcher: &certwatcher.CertWatcher{},
	})
	var problems []error
	places := make(map[mutationtypes.ID]string)
	for _, object := range objects {
		if object.GroupVersionKind().Group != mutationsGroup {
			continue
		}
		mutator, err := mutatorOf(object)
		if err != nil {
			problems = append(problems, problem(object, err))
			continue
		}
		id := mutator.ID()
		if before, isKnown := places[id]; isKnown {
			problems = append(problems, problem(object, fmt.Errorf("the same mutator stands in %s", before)))
			continue
		}
		// The error says that it conflicts; conflicts are complete only after the last mutator.
		_ = made.system.Upsert(made.running.stopping(mutator))
		places[id] = object.Place
		if isWithin(object.Object["spec"], "externalData") {
			made.turns = nil // a call waits for the provider
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(places), compareIDs) {
		others := made.system.GetConflicts(id)
		delete(others, id)
		if len(others) == 0 {
			made.count++
			continue
		}
		made.conflicting = append(made.conflicting, mutatorName(id))
		made.conflicts = append(made.conflicts, fmt.Sprintf(
			"%s: %s is left out, because its location says another schema than %s",
			places[id], mutatorName(id), mutatorNames(others)))
	}
	return made, problems
}

// description is the line of ListPolicies.
func (m *mutatorSet) description() string {
	text := fmt.Sprintf("All mutators of Gatekeeper (%d), applied until nothing changes any more.", m.count)
	if len(m.conflicting) > 0 {
		text += fmt.Sprintf(" Left out, because their schemas conflict: %s.", listed(m.conflicting))
	}
	return text
}

// apply mutates the object and returns whether it has changed. An error of ctx means that the time is over.
func (m *mutatorSet) apply(ctx context.Context, object *mutationtypes.Mutable) (bool, error) {
	if m.count == 0 {
		return false, nil
	}
	leave, err := m.turns.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	m.running.contexts.Store(object, ctx)
	defer m.running.contexts.Delete(object)
	isMutated, err := m.system.Mutate(ctx, object)
	if stopped := ctx.Err(); stopped != nil {
		return false, stopped
	}
	return isMutated, err
}

// mutatorOf reads a mutator of any version that Gatekeeper serves.
func mutatorOf(object document) (mutationtypes.Mutator, error) {
	switch object.GetKind() {
	case "Assign":
		read := &mutationsunversioned.Assign{}
		if err := convert(object, read); err != nil {
			return nil, err
		}
		parameters := &read.Spec.Parameters
		if err := cmp.Or(
			checkMatch(&read.Spec.Match), checkPathTests(parameters.PathTests), completeExternalData(parameters.Assign.ExternalData),
		); err != nil {
			return nil, err
		}
		return valid(mutators.MutatorForAssign(read))
	case "AssignMetadata":
		read := &mutationsunversioned.AssignMetadata{}
		if err := convert(object, read); err != nil {
			return nil, err
		}
		if err := cmp.Or(
			checkMatch(&read.Spec.Match), completeExternalData(read.Spec.Parameters.Assign.ExternalData),
		); err != nil {
			return nil, err
		}
		return valid(mutators.MutatorForAssignMetadata(read))
	case "ModifySet":
		read := &mutationsunversioned.ModifySet{}
		if err := convert(object, read); err != nil {
			return nil, err
		}
		parameters := &read.Spec.Parameters
		parameters.Operation = cmp.Or(parameters.Operation, mutationsunversioned.MergeOp)
		if err := cmp.Or(
			checkMatch(&read.Spec.Match), checkPathTests(parameters.PathTests),
			oneOf("spec.parameters.operation", parameters.Operation, mutationsunversioned.MergeOp, mutationsunversioned.PruneOp),
		); err != nil {
			return nil, err
		}
		return valid(newModifySet(read))
	case "AssignImage":
		read := &mutationsunversioned.AssignImage{}
		if err := convert(object, read); err != nil {
			return nil, err
		}
		if err := cmp.Or(checkMatch(&read.Spec.Match), checkPathTests(read.Spec.Parameters.PathTests)); err != nil {
			return nil, err
		}
		return valid(mutators.MutatorForAssignImage(read))
	}
	return nil, fmt.Errorf("found kind %s, expected Assign, AssignMetadata, ModifySet or AssignImage", object.GetKind())
}

// valid drops a mutator that came with an error: an interface with a nil pointer in it is not nil.
func valid[M mutationtypes.Mutator](mutator M, err error) (mutationtypes.Mutator, error) {
	if err != nil {
		return nil, err
	}
	return mutator, nil
}

// convert decodes a document into the type of all versions. A field that the version does not have is an error: it
// would be ignored, and the mutator would do something else than what its author meant.
func convert(object document, into runtime.Object) error {
	versioned, err := gatekeeperScheme.New(object.GroupVersionKind())
	if err != nil {
		return fmt.Errorf("%s %s is not known", object.GetAPIVersion(), object.GetKind())
	}
	content := object.Object
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, versioned, true); err != nil {
		return err
	}
	return gatekeeperScheme.Convert(versioned, into, nil)
}

func mutatorName(id mutationtypes.ID) string { return id.Kind + "/" + id.Name }

func mutatorNames(ids map[mutationtypes.ID]bool) string {
	names := make([]string, 0, len(ids))
	for id := range ids {
		names = append(names, mutatorName(id))
	}
	slices.Sort(names)
	return listed(names)
}

func compareIDs(a, b mutationtypes.ID) int { return strings.Compare(mutatorName(a), mutatorName(b)) }

// maxListed is how many names a line lists: there may be thousands.
const maxListed = 20

func listed(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}
