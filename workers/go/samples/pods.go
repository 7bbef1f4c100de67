// Package samples has policies to read and to run: go run ./cmd/samples.
//
// They read objects as maps, because each applies to several kinds, such as Pod and CronJob. A policy for one kind
// is shorter with [worker.Review.Decode] and the types of k8s.io/api.
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

// specs has the path of the pod spec by kind.
var specs = map[schema.GroupKind][]string{
	{Kind: "Pod"}:                       inPod,
	{Kind: "ReplicationController"}:     inTemplate,
	{Group: "apps", Kind: "Deployment"}: inTemplate, {Group: "apps", Kind: "ReplicaSet"}: inTemplate,
	{Group: "apps", Kind: "StatefulSet"}: inTemplate, {Group: "apps", Kind: "DaemonSet"}: inTemplate,
	{Group: "batch", Kind: "Job"}:     inTemplate,
	{Group: "batch", Kind: "CronJob"}: inCronJob,
}

// podSpec is a pod spec, and its position in the object.
type podSpec struct {
	// path is the prefix of field paths, such as spec or spec.template.spec.
	path string
	// spec is a part of the review's object: a change of it changes the object.
	spec object
	// isPod reports whether the object is a Pod, whose spec is mostly immutable.
	isPod bool
}

// container is one container, and its path, such as spec.initContainers[0].
type container struct {
	path string
	object
}

// findPod returns the pod spec that a request creates or updates; nil if there is none.
//
// Also nil for an object with a deletionTimestamp: a denial of its updates, which remove finalizers, would prevent
// its deletion.
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
		return nil // status has no spec, and scale, exec and others are other kinds of object
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

// containers returns the containers in these fields; default: all three lists.
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

// member returns the object of a key; nil, which reads as empty, if there is none.
func member(found object, key string) object {
	members, _ := found[key].(object)
	return members
}

func text(found object, key string) string {
	value, _ := found[key].(string)
	return value
}

// isSet reports whether a value exists and is not false or empty.
func isSet(value any) bool {
	return value != nil && value != false && value != ""
}
