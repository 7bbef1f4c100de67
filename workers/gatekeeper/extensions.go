package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// extensions are what the documents that change or generate objects make: Providers, mutators and ExpansionTemplates. They
// do not change.
type extensions struct {
	// key identifies the documents.
	key       contentHash
	providers *providerSet
	mutators  *mutatorSet
	// alone has the mutators with a rollout of their own, by the names of their policies.
	alone      map[string]*mutatorSet
	expansions *expansionSet
	problems   []error
}

// extensionsOf returns what the documents have made, before if none of these has changed: objects of an inventory change
// often, and thousands of mutators take half a second. served are the Providers that are in use; both may be nil.
func extensionsOf(objects []document, external *externalData, served *providerSet, before *extensions) *extensions {
	hash := sha256.New()
	for _, object := range objects {
		switch object.GroupVersionKind().Group {
		case mutationsGroup, expansionGroup, externalDataGroup:
			content := hashOf(object)
			fmt.Fprintf(hash, "%q %x\n", object.Place, content)
		}
	}
	made := &extensions{key: contentHash(hash.Sum(nil))}
	if before != nil && before.key == made.key {
		return before
	}
	var wrong []error
	made.providers, made.problems = newProviderSet(objects, external, served)
	together, alone := byRollout(objects)
	made.mutators, wrong = newMutatorSet(together, made.providers)
	made.problems = append(made.problems, wrong...)
	made.alone = make(map[string]*mutatorSet, len(alone))
	for name, documents := range alone {
		made.alone[name], wrong = newMutatorSet(documents, made.providers)
		made.problems = append(made.problems, wrong...)
	}
	made.expansions, wrong = newExpansionSet(objects, made.mutators)
	made.problems = append(made.problems, wrong...)
	return made
}

// conflicts has a line for each document that is left out because it contradicts others.
func (a *extensions) conflicts() []string {
	return slices.Concat(a.mutators.conflicts, a.expansions.conflicts)
}
