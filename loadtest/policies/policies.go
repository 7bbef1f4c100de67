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

func text(o object, key string) string {
	found, _ := o[key].(string)
	return found
}

// each returns a policy that calls check for each container until one returns an error.
func each(check func(container object) error) worker.PolicyFunc {
	return func(_ context.Context, review *worker.Review) error {
		containers, _ := member(review.Object(), "spec")["containers"].([]any)
		for _, item := range containers {
			if container, ok := item.(object); ok {
				if err := check(container); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func requireLabel(label string) worker.PolicyFunc {
	return func(_ context.Context, review *worker.Review) error {
		if text(member(member(review.Object(), "metadata"), "labels"), label) == "" {
			return worker.Deny(fmt.Sprintf("label %s is required", label), worker.WithField("metadata.labels"))
		}
		return nil
	}
}

func denyPrivileged(container object) error {
	if privileged, _ := member(container, "securityContext")["privileged"].(bool); privileged {
		return worker.Deny(fmt.Sprintf("container %s is privileged", text(container, "name")))
	}
	return nil
}

func denyLatest(container object) error {
	if strings.HasSuffix(text(container, "image"), ":latest") {
		return worker.Deny(fmt.Sprintf("container %s has the tag latest", text(container, "name")))
	}
	return nil
}

func requireLimits(container object) error {
	limits := member(member(container, "resources"), "limits")
	if limits["cpu"] == nil || limits["memory"] == nil {
		return worker.Deny(fmt.Sprintf("container %s has no limits", text(container, "name")))
	}
	return nil
}

func alwaysPull(container object) error {
	container["imagePullPolicy"] = "Always"
	return nil
}

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
		if toleration, _ := item.(object); text(toleration, "key") == "dedicated" {
			return nil
		}
	}
	spec["tolerations"] = append(found, object{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"})
	return nil
}

func defaultRequests(container object) error {
	resources := member(container, "resources")
	if resources == nil {
		resources = object{}
		container["resources"] = resources
	}
	if resources["requests"] == nil {
		resources["requests"] = object{"cpu": "100m", "memory": "128Mi"}
	}
	return nil
}

func main() {
	server := worker.NewServer()
	for _, label := range labels {
		server.Policy("require-"+label, "", requireLabel(label))
	}
	server.Policy("deny-privileged", "", each(denyPrivileged))
	server.Policy("deny-latest", "", each(denyLatest))
	server.Policy("require-limits", "", each(requireLimits))
	server.MutatingPolicy("always-pull", "", each(alwaysPull))
	server.MutatingPolicy("add-label", "", addLabel)
	server.MutatingPolicy("add-toleration", "", addToleration)
	server.MutatingPolicy("default-requests", "", each(defaultRequests))
	server.Main()
}
