package main

import (
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// applier returns what is called with all documents: at the start, and after each change. At the start, a problem with a
// document of a folder is an error; in a cluster, and later, it costs only the policies of that document.
func (e *engine) applier(isCluster bool) func([]document) error {
	isStarted := false
	return func(objects []document) error {
		apply := e.reload
		if !isStarted {
			// Reading and compiling leave several times as much garbage as documents.
			defer debug.FreeOSMemory()
			if !isCluster {
				apply = e.load
			}
		}
		isStarted = true
		return apply(slices.DeleteFunc(slices.Clone(objects), isGoing))
	}
}

// isGoing reports whether an object is being deleted, with which Gatekeeper's controllers deal as if it were gone
// (gatekeeper:pkg/controller). A Namespace is still that of its objects.
func isGoing(object document) bool {
	return object.GetDeletionTimestamp() != nil && object.GroupVersionKind().GroupKind() != schema.GroupKind{Kind: "Namespace"}
}

// ownKinds are the kinds of a cluster that are always followed. * stands for all kinds of a group.
var ownKinds = []schema.GroupVersionKind{
	{Group: templatesGroup, Kind: "ConstraintTemplate"}, {Group: constraintsGroup, Kind: "*"},
	{Group: configGroup, Kind: "Config"}, {Group: syncSetGroup, Kind: "SyncSet"},
	{Group: mutationsGroup, Kind: "*"}, {Group: expansionGroup, Kind: "ExpansionTemplate"},
	{Group: externalDataGroup, Kind: "Provider"},
}

// wanted returns the kinds of a cluster that are followed: Gatekeeper's own, and those of the inventory.
func wanted(current []document) []schema.GroupVersionKind {
	configured, _ := configurationOf(current)
	synced := slices.SortedFunc(slices.Values(configured.synced), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
	return append(slices.Clone(ownKinds), slices.Compact(synced)...)
}
