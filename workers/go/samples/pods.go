// Package samples has policies to read and to run: go run ./cmd/samples.
//
// They look at objects as maps, since each holds for kinds as different as a Pod and a CronJob. A policy for one
// kind is shorter with [worker.Review.Decode] and the types of k8s.io/api.
package samples

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"admission-gateway.io/worker"
)

type object = map[string]any

var (
	inPod      = []string{"spec"}
	inTemplate = []string{"spec", "template", "spec"}
	inCronJob  = []string{"spec", "jobTemplate", "spec", "template", "spec"}
)

// specs says where the kinds that have a pod in them have it.
var specs = map[schema.GroupKind][]string{
	{Kind: "Pod"}:                       inPod,
	{Kind: "ReplicationController"}:     inTemplate,
	{Group: "apps", Kind: "Deployment"}: inTemplate, {Group: "apps", Kind: "ReplicaSet"}: inTemplate,
	{Group: "apps", Kind: "StatefulSet"}: inTemplate, {Group: "apps", Kind: "DaemonSet"}: inTemplate,
	{Group: "batch", Kind: "Job"}:     inTemplate,
	{Group: "batch", Kind: "CronJob"}: inCronJob,
}

// podSpec is a pod's spec, and where it stands in the object.
type podSpec struct {
	// path is spec or spec.template.spec, say, to begin field paths with.
	path string
	// spec is the part of the review's object itself: changing it changes that.
	spec object
	// isPod tells whether it is a Pod's own: most of that is immutable once the Pod exists.
	isPod bool
}

// container is one container, and where it stands: spec.initContainers[0].
type container struct {
	path string
	object
}

// findPod returns the pod spec that a request creates or updates; nil if it does not.
//
// nil too for an object that is on its way out: it still gets updates (its finalizers are taken off), and a
// policy that denied those would keep it from ever going.
func findPod(review *worker.Review) *podSpec {
	found := review.Object()
	if operation := review.Operation(); operation != admissionv1.Create && operation != admissionv1.Update {
		return nil
	}
	kind := review.Kind()
	keys, ok := specs[schema.GroupKind{Group: kind.Group, Kind: kind.Kind}]
	if found == nil || !ok || isOnItsWayOut(found) {
		return nil
	}
	switch review.SubResource() {
	case "", "ephemeralcontainers", "resize":
	default:
		return nil // status does not carry the spec, and scale, exec and so on are other kinds of object
	}
	spec := found
	for _, key := range keys {
		if spec, ok = spec[key].(object); !ok {
			return nil
		}
	}
	return &podSpec{path: strings.Join(keys, "."), spec: spec, isPod: len(keys) == len(inPod)}
}

func isOnItsWayOut(found object) bool {
	return isSet(member(found, "metadata")["deletionTimestamp"])
}

// containers returns the containers in these fields; in all three lists where none is named.
func (p *podSpec) containers(fields ...string) []container {
	if len(fields) == 0 {
		fields = []string{"containers", "initContainers", "ephemeralContainers"}
	}
	var found []container
	for _, field := range fields {
		items, _ := p.spec[field].([]any)
		for index, item := range items {
			members, _ := item.(object)
			found = append(found, container{fmt.Sprintf("%s.%s[%d]", p.path, field, index), members})
		}
	}
	return found
}

// member returns the object under a key; nil, which reads as an empty one, if there is none.
func member(found object, key string) object {
	members, _ := found[key].(object)
	return members
}

func text(found object, key string) string {
	value, _ := found[key].(string)
	return value
}

// isSet tells whether a value is there and is not false or empty.
func isSet(value any) bool {
	return value != nil && value != false && value != ""
}
