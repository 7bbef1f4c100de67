package samples

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"admission-gateway.io/worker"
)

var (
	requiredLabels = []string{"team"}
	hostNamespaces = []string{"hostNetwork", "hostPID", "hostIPC"}
)

const (
	busyAnnotation    = "samples.example/busy"
	retryAfterSeconds = 10
)

// ProtectBusy denies the deletion of objects that have an annotation, with a delay for the client's retry.
func ProtectBusy(_ context.Context, review *worker.Review) error {
	if review.Operation() != admissionv1.Delete || review.SubResource() != "" {
		return nil
	}
	metadata := review.Read("oldObject", "metadata")
	work := metadata.Get("annotations", busyAnnotation).Text()
	if work == "" {
		return nil
	}
	return worker.Deny(
		fmt.Sprintf("metadata.annotations[%s]: busy with %s: try again when it is done", busyAnnotation, work),
		worker.WithCode(http.StatusTooManyRequests), worker.WithReason(metav1.StatusReasonTooManyRequests),
		worker.WithRetryAfterSeconds(retryAfterSeconds), worker.WithName(metadata.Get("name").Text()),
		worker.WithKind(review.Kind().Group, review.Kind().Kind), worker.WithUID(types.UID(metadata.Get("uid").Text())),
	)
}

// RequireLabels denies objects that do not name their team in a label.
func RequireLabels(_ context.Context, review *worker.Review) error {
	operation := review.Operation()
	if operation != admissionv1.Create && operation != admissionv1.Update {
		return nil
	}
	found := review.Read("object")
	metadata := found.Get("metadata")
	if !found.IsObject() || review.SubResource() != "" || isSet(metadata.Get("deletionTimestamp").Any()) {
		return nil
	}
	var causes []metav1.StatusCause
	for _, label := range requiredLabels {
		if !isSet(metadata.Get("labels", label).Any()) {
			causes = append(causes, metav1.StatusCause{
				Type:    metav1.CauseTypeFieldValueRequired,
				Message: fmt.Sprintf(`label "%s" is missing: add it`, label),
				Field:   fmt.Sprintf("metadata.labels[%s]", label),
			})
		}
	}
	return deny(causes)
}

// DenyLatestTag denies images that are not named by a digest or by a tag other than latest.
func DenyLatestTag(_ context.Context, review *worker.Review) error {
	pod := findPod(review)
	if pod == nil {
		return nil
	}
	var causes []metav1.StatusCause
	for _, container := range pod.containers() {
		image := text(container.object, "image")
		if problem := tagProblem(image); problem != "" {
			message := fmt.Sprintf(`image "%s" %s: name a version`, image, problem)
			causes = append(causes, worker.Cause(message, container.path+".image"))
		}
	}
	return deny(causes)
}

// tagProblem returns the problem of the tag; empty if there is none, or no image.
func tagProblem(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	if image == "" || digest != "" {
		return ""
	}
	// A colon before the last slash is the registry's port.
	switch _, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":"); tag {
	case "":
		return "has no tag, which means latest"
	case "latest":
		return "has the tag latest"
	}
	return ""
}

// DenyPrivileged denies pods that run privileged or share the node's namespaces.
func DenyPrivileged(_ context.Context, review *worker.Review) error {
	pod := findPod(review)
	if pod == nil {
		return nil
	}
	var causes []metav1.StatusCause
	for _, field := range hostNamespaces {
		if isSet(pod.spec[field]) {
			message := field + " shares a namespace of the node: set it to false"
			causes = append(causes, worker.Cause(message, pod.path+"."+field))
		}
	}
	for _, container := range pod.containers() {
		if isSet(member(container.object, "securityContext")["privileged"]) {
			message := fmt.Sprintf(`container "%s" is privileged: set it to false`, text(container.object, "name"))
			causes = append(causes, worker.Cause(message, container.path+".securityContext.privileged"))
		}
	}
	return deny(causes)
}

// WarnNoMemoryLimit lets containers without a memory limit through with a warning.
func WarnNoMemoryLimit(_ context.Context, review *worker.Review) error {
	pod := findPod(review)
	if pod == nil {
		return nil
	}
	var unlimited []string
	for _, container := range pod.containers() {
		limits := member(member(container.object, "resources"), "limits")
		if !isSet(limits["memory"]) {
			name := text(container.object, "name")
			unlimited = append(unlimited, name)
			review.Warn(fmt.Sprintf(`container "%s" has no memory limit`, name))
		}
	}
	if len(unlimited) > 0 {
		review.Annotate("no-memory-limit", strings.Join(unlimited, ","))
	}
	return nil
}

// deny returns a denial with these causes: field, problem and what to do of each; nil without causes.
func deny(causes []metav1.StatusCause) error {
	if len(causes) == 0 {
		return nil
	}
	messages := make([]string, len(causes))
	for index, cause := range causes {
		messages[index] = cause.Field + ": " + cause.Message
	}
	return worker.Deny(strings.Join(messages, "; "), worker.WithCauses(causes...))
}

const (
	replicasSchema = `{"type":"object","properties":{"max":{"type":"integer","minimum":0}},"additionalProperties":false}`
	defaultMax     = 10
)

// maxReplicas prepares the parameters of LimitReplicas: the number of replicas.
func maxReplicas(text json.RawMessage) (any, error) {
	parameters := struct{ Max *int64 }{}
	if err := json.Unmarshal(text, &parameters); err != nil || parameters.Max != nil && *parameters.Max < 0 {
		return nil, errors.New("max is to be a whole number of at least 0")
	}
	if parameters.Max == nil {
		return int64(defaultMax), nil
	}
	return *parameters.Max, nil
}

// LimitReplicas denies objects with more replicas than its parameter max.
func LimitReplicas(_ context.Context, review *worker.Review) error {
	number := review.Read("object", "spec", "replicas").Number()
	most := review.Parameters().(int64)
	if replicas, err := number.Int64(); err == nil && replicas > most {
		message := fmt.Sprintf("%d is more than the maximum of %d: lower it", replicas, most)
		return deny([]metav1.StatusCause{worker.Cause(message, "spec.replicas")})
	}
	return nil
}
