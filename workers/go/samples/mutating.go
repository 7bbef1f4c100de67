package samples

import (
	"context"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"

	"admission-gateway.io/worker"
)

const (
	sidecarName  = "log-shipper"
	sidecarImage = "registry.example/log-shipper:1.4.2"
)

var defaultRequests = map[string]string{"cpu": "100m", "memory": "128Mi"}

// AlwaysPullImages has images pulled at every start.
func AlwaysPullImages(_ context.Context, review *worker.Review) error {
	pod := findPod(review)
	if pod == nil {
		return nil
	}
	for _, container := range newContainers(review, pod) {
		container.object["imagePullPolicy"] = "Always"
	}
	return nil
}

// newContainers returns the containers whose pull policy may change: all except existing containers of a Pod.
func newContainers(review *worker.Review, pod *podSpec) []container {
	found := pod.containers()
	if !pod.isPod || review.Operation() != admissionv1.Update {
		return found
	}
	old := &podSpec{spec: member(review.OldObject(), "spec")}
	known := make(map[string]bool)
	for _, container := range old.containers() {
		known[text(container.object, "name")] = true
	}
	var added []container
	for _, container := range found {
		if !known[text(container.object, "name")] {
			added = append(added, container)
		}
	}
	return added
}

// InjectSidecar gives Pods a container that ships their logs.
func InjectSidecar(_ context.Context, review *worker.Review) error {
	pod := findPod(review)
	// A running Pod accepts no further containers.
	if pod == nil || (pod.isPod && review.Operation() != admissionv1.Create) {
		return nil
	}
	containers, _ := pod.spec["containers"].([]any)
	if len(containers) == 0 {
		return nil // the API server rejects such a Pod
	}
	for _, container := range pod.containers() {
		if text(container.object, "name") == sidecarName {
			return nil
		}
	}
	pod.spec["containers"] = append(containers, object{
		"name":  sidecarName,
		"image": sidecarImage,
		"resources": object{
			"requests": object{"cpu": "10m", "memory": "32Mi"},
			"limits":   object{"memory": "64Mi"},
		},
	})
	review.Annotate("sidecar", sidecarName)
	return nil
}

// DefaultResources gives containers that ask for no CPU or memory a small request.
func DefaultResources(_ context.Context, review *worker.Review) error {
	pod := findPod(review)
	if pod == nil || (pod.isPod && review.Operation() != admissionv1.Create) {
		return nil
	}
	for _, container := range pod.containers("containers", "initContainers") {
		resources := member(container.object, "resources")
		requests, limits := member(resources, "requests"), member(resources, "limits")
		wanted := object{}
		maps.Copy(wanted, requests)
		for name, value := range defaultRequests {
			_, requested := requests[name]
			// For a limit without a request the API server sets the request to the limit.
			if _, isLimited := limits[name]; !requested && !isLimited {
				wanted[name] = value
			}
		}
		if len(wanted) > len(requests) {
			if resources == nil {
				resources = object{}
				container.object["resources"] = resources
			}
			resources["requests"] = wanted
		}
	}
	return nil
}

// TeamFromNamespace gives objects without a team label that of their Namespace.
func TeamFromNamespace(_ context.Context, review *worker.Review) error {
	found := review.Object()
	if review.Operation() != admissionv1.Create || review.SubResource() != "" || found == nil {
		return nil
	}
	team := text(member(member(review.NamespaceObject(), "metadata"), "labels"), "team")
	metadata, ok := found["metadata"].(object)
	if team == "" || !ok {
		return nil
	}
	// An explicit patch as an example; setting the label in the object has the same effect.
	if metadata["labels"] == nil {
		review.SetPatch(worker.Operation{Op: "add", Path: "/metadata/labels", Value: object{"team": team}})
	} else if !isSet(member(metadata, "labels")["team"]) {
		review.SetPatch(worker.Operation{Op: "add", Path: "/metadata/labels/team", Value: team})
	}
	return nil
}
