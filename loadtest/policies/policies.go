// Command policies serves the policies of the load tests; package loadtest.policies describes them.
package main

import (
	"context"
	"fmt"
	"strings"

	"admission-gateway.io/worker"
)

type object = map[string]any

var labels = []string{"app", "owner", "env", "cost", "component", "version", "part-of"}

func member(o object, key string) object {
	found, _ := o[key].(object)
	return found
}

// check returns a policy that denies the first container with this problem.
func check(problem string, isDenied func(container worker.Value) bool) worker.PolicyFunc {
	return func(_ context.Context, review *worker.Review) error {
		for container := range review.Read("object", "spec", "containers").Items() {
			if isDenied(container) {
				return worker.Deny(fmt.Sprintf("container %s %s", container.Get("name").Text(), problem))
			}
		}
		return nil
	}
}

func requireLabel(label string) worker.PolicyFunc {
	return func(_ context.Context, review *worker.Review) error {
		if review.Read("object", "metadata", "labels", label).Text() == "" {
			return worker.Deny(fmt.Sprintf("label %s is required", label), worker.WithField("metadata.labels"))
		}
		return nil
	}
}

func isPrivileged(container worker.Value) bool {
	return container.Get("securityContext", "privileged").Bool()
}

func isLatest(container worker.Value) bool {
	return strings.HasSuffix(container.Get("image").Text(), ":latest")
}

func isUnlimited(container worker.Value) bool {
	limits := container.Get("resources", "limits")
	return !limits.Get("cpu").Exists() || !limits.Get("memory").Exists()
}

// each returns a policy that changes each container.
func each(change func(container object)) worker.PolicyFunc {
	return func(_ context.Context, review *worker.Review) error {
		containers, _ := member(review.Object(), "spec")["containers"].([]any)
		for _, item := range containers {
			if container, ok := item.(object); ok {
				change(container)
			}
		}
		return nil
	}
}

func alwaysPull(container object) { container["imagePullPolicy"] = "Always" }

func addLabel(_ context.Context, review *worker.Review) error {
	metadata := member(review.Object(), "metadata")
	found := member(metadata, "labels")
	if found == nil {
		found = object{}
		metadata["labels"] = found
	}
	found["managed"] = "true"
	return nil
}

func addToleration(_ context.Context, review *worker.Review) error {
	spec := member(review.Object(), "spec")
	found, _ := spec["tolerations"].([]any)
	for _, item := range found {
		if toleration, _ := item.(object); toleration["key"] == "dedicated" {
			return nil
		}
	}
	spec["tolerations"] = append(found, object{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"})
	return nil
}

func defaultRequests(container object) {
	resources := member(container, "resources")
	if resources == nil {
		resources = object{}
		container["resources"] = resources
	}
	if resources["requests"] == nil {
		resources["requests"] = object{"cpu": "100m", "memory": "128Mi"}
	}
}

func main() {
	server := worker.NewServer()
	for _, label := range labels {
		server.Policy("require-"+label, "", requireLabel(label))
	}
	server.Policy("deny-privileged", "", check("is privileged", isPrivileged))
	server.Policy("deny-latest", "", check("has the tag latest", isLatest))
	server.Policy("require-limits", "", check("has no limits", isUnlimited))
	server.MutatingPolicy("always-pull", "", each(alwaysPull))
	server.MutatingPolicy("add-label", "", addLabel)
	server.MutatingPolicy("add-toleration", "", addToleration)
	server.MutatingPolicy("default-requests", "", each(defaultRequests))
	server.Main()
}
