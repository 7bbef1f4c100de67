// Command chain serves the policies of loadtest.policies with kubewebhook: /v1, /v4, /v10 and /m4 are chains of
// validators or mutators in one webhook, and /one/POLICY is one validator alone. /l10 is the chain of
// loadtest.peers.labels.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwhhttp "github.com/slok/kubewebhook/v2/pkg/http"
	kwhlog "github.com/slok/kubewebhook/v2/pkg/log"
	"github.com/slok/kubewebhook/v2/pkg/model"
	"github.com/slok/kubewebhook/v2/pkg/webhook"
	"github.com/slok/kubewebhook/v2/pkg/webhook/mutating"
	"github.com/slok/kubewebhook/v2/pkg/webhook/validating"
)

// check returns why a Pod is denied; empty if it is allowed.
type check func(pod *corev1.Pod) string

func (c check) Validate(
	_ context.Context, _ *model.AdmissionReview, found metav1.Object,
) (*validating.ValidatorResult, error) {
	problem := c(found.(*corev1.Pod))
	return &validating.ValidatorResult{Valid: problem == "", Message: problem}, nil
}

type change func(pod *corev1.Pod)

func (c change) Mutate(
	_ context.Context, _ *model.AdmissionReview, found metav1.Object,
) (*mutating.MutatorResult, error) {
	c(found.(*corev1.Pod))
	return &mutating.MutatorResult{MutatedObject: found}, nil
}

func requireLabel(label string) check {
	return func(pod *corev1.Pod) string {
		if pod.Labels[label] == "" {
			return fmt.Sprintf("label %s is required", label)
		}
		return ""
	}
}

// each returns a check of all containers; predicate reports whether one is denied.
func each(problem string, predicate func(container *corev1.Container) bool) check {
	return func(pod *corev1.Pod) string {
		for i := range pod.Spec.Containers {
			if container := &pod.Spec.Containers[i]; predicate(container) {
				return fmt.Sprintf("container %s %s", container.Name, problem)
			}
		}
		return ""
	}
}

func isPrivileged(container *corev1.Container) bool {
	security := container.SecurityContext
	return security != nil && security.Privileged != nil && *security.Privileged
}

func isLatest(container *corev1.Container) bool {
	return strings.HasSuffix(container.Image, ":latest")
}

func isUnlimited(container *corev1.Container) bool {
	limits := container.Resources.Limits
	return limits.Cpu().IsZero() || limits.Memory().IsZero()
}

func alwaysPull(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
	}
}

func addLabel(name, value string) change {
	return func(pod *corev1.Pod) {
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[name] = value
	}
}

func addToleration(pod *corev1.Pod) {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == "dedicated" {
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})
}

var requests = corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
}

func defaultRequests(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		if resources := &pod.Spec.Containers[i].Resources; len(resources.Requests) == 0 {
			resources.Requests = requests.DeepCopy()
		}
	}
}

func handle(mux *http.ServeMux, path string, served webhook.Webhook, err error) {
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle(path, kwhhttp.MustHandlerFor(kwhhttp.HandlerConfig{Webhook: served, Logger: kwhlog.Noop}))
}

func main() {
	listen := flag.String("listen", "", "HOST:PORT")
	cert, key := flag.String("cert", "", "PEM file"), flag.String("key", "", "PEM file")
	flag.Parse()
	names := []string{"require-app", "deny-privileged", "deny-latest", "require-limits"}
	checks := []validating.Validator{
		requireLabel("app"), each("is privileged", isPrivileged), each("has the tag latest", isLatest),
		each("has no limits", isUnlimited),
	}
	for _, label := range []string{"owner", "env", "cost", "component", "version", "part-of"} {
		names, checks = append(names, "require-"+label), append(checks, requireLabel(label))
	}
	mux := http.NewServeMux()
	chain := func(path string, validators ...validating.Validator) {
		served, err := validating.NewWebhook(validating.WebhookConfig{
			ID: path, Obj: &corev1.Pod{}, Validator: validating.NewChain(kwhlog.Noop, validators...),
			Logger: kwhlog.Noop,
		})
		handle(mux, path, served, err)
	}
	chain("/v1", checks[:1]...)
	chain("/v4", checks[:4]...)
	chain("/v10", checks...)
	for i, name := range names {
		chain("/one/"+name, checks[i])
	}
	mutate := func(name string, mutators ...mutating.Mutator) {
		served, err := mutating.NewWebhook(mutating.WebhookConfig{
			ID: name, Obj: &corev1.Pod{}, Mutator: mutating.NewChain(kwhlog.Noop, mutators...), Logger: kwhlog.Noop,
		})
		handle(mux, "/"+name, served, err)
	}
	managed := addLabel("managed", "true")
	mutate("m4", change(alwaysPull), managed, change(addToleration), change(defaultRequests))
	labels := make([]mutating.Mutator, 10)
	for i := range labels {
		labels[i] = addLabel(fmt.Sprintf("label%d", i), "applied")
	}
	mutate("l10", labels...)
	log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, mux))
}
