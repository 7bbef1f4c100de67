package worker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"admission-gateway.io/worker/internal/tree"
)

// Review is one admission request as one policy gets to see it.
//
// It is parsed when the policy first looks, and belongs to this one call: a policy may change what it finds,
// and no other policy sees it. It is not for several goroutines at a time.
//
// What is not well-formed reads as empty, and then the outcome of the call is an error whatever the policy
// returns; [Review.Err] tells before.
type Review struct {
	// Both may be shared with other calls.
	payload, namespaceJSON []byte
	mutating               bool

	// request is the AdmissionRequest; nil until the first look.
	request map[string]any
	// touched is set once a policy may change the object; before is a copy of it as it came.
	touched         bool
	before          any
	namespaceObject map[string]any
	err             error

	patch       []Operation
	patchSet    bool
	warnings    []string
	annotations map[string]string
}

// malformed is the error of a payload that is not the JSON object that the contract asks for.
type malformed struct{ text string }

func (m *malformed) Error() string { return m.text }

// ParseReview returns a Review for a unit test, from the JSON of an AdmissionReview or of the
// AdmissionRequest in it. It keeps track of changes as for a mutating policy.
func ParseReview(document []byte, options ...ReviewOption) (*Review, error) {
	members, err := parseObject("review", document)
	if err != nil {
		return nil, err
	}
	if request, ok := members["request"].(map[string]any); ok {
		members = request
	}
	review := &Review{payload: tree.Append(nil, members), mutating: true}
	for _, option := range options {
		option(review)
	}
	return review, nil
}

// ReviewOption is an option of [ParseReview].
type ReviewOption func(*Review)

// WithNamespaceObject sets the JSON of the Namespace that the request is in.
func WithNamespaceObject(document []byte) ReviewOption {
	return func(review *Review) { review.namespaceJSON = bytes.Clone(document) }
}

// parseObject returns the members of the object that text is to be.
func parseObject(what string, text []byte) (map[string]any, error) {
	var members map[string]any
	err := tree.Decode(text, &members)
	var other *json.UnmarshalTypeError
	switch {
	case errors.As(err, &other):
		return nil, &malformed{fmt.Sprintf("%s is to be a JSON object, found %s", what, other.Value)}
	case err != nil:
		return nil, &malformed{fmt.Sprintf("%s is not JSON: %v", what, err)}
	case members == nil:
		return nil, &malformed{what + " is to be a JSON object, found null"}
	}
	return members, nil
}

// Err returns what is wrong with what the gateway sent, if anything is, and it was looked at.
func (r *Review) Err() error { return r.err }

// look parses the request if that has not been done.
func (r *Review) look() map[string]any {
	if r.request == nil {
		request, err := parseObject("admission_request", r.payload)
		if err != nil {
			request = map[string]any{}
		}
		r.request, r.err = request, cmp.Or(r.err, err)
	}
	return r.request
}

// touch is look for who may change the object.
func (r *Review) touch() map[string]any {
	request := r.look()
	if r.mutating && !r.touched {
		r.touched, r.before = true, runtime.DeepCopyJSONValue(request["object"])
	}
	return request
}

// Request returns the AdmissionRequest as Kubernetes wrote it. Numbers are json.Number.
func (r *Review) Request() map[string]any { return r.touch() }

// Object returns the object of the request, in which a mutating policy may change what it likes; nil where
// there is none (DELETE). For CONNECT it is an options object, such as PodExecOptions. Numbers are json.Number.
func (r *Review) Object() map[string]any { return objectIn(r.touch(), "object") }

// SetObject puts another object in place of the request's. It may consist of whatever encoding/json can write.
func (r *Review) SetObject(object map[string]any) { r.touch()["object"] = object }

// OldObject returns the stored object, for UPDATE and DELETE; nil for the rest.
func (r *Review) OldObject() map[string]any { return objectIn(r.look(), "oldObject") }

// NamespaceObject returns the Namespace that the request is in; nil if there is none or it is not known.
func (r *Review) NamespaceObject() map[string]any {
	if r.namespaceObject == nil && len(r.namespaceJSON) > 0 {
		object, err := parseObject("namespace_object", r.namespaceJSON)
		r.namespaceObject, r.err = object, cmp.Or(r.err, err)
	}
	return r.namespaceObject
}

// Operation returns CREATE, UPDATE, DELETE or CONNECT.
func (r *Review) Operation() admissionv1.Operation {
	return admissionv1.Operation(r.text("operation"))
}

// Kind returns group, version and kind of the object.
func (r *Review) Kind() metav1.GroupVersionKind {
	kind := objectIn(r.look(), "kind")
	return metav1.GroupVersionKind{
		Group: textIn(kind, "group"), Version: textIn(kind, "version"), Kind: textIn(kind, "kind"),
	}
}

// Resource returns group, version and resource that the request is for.
func (r *Review) Resource() metav1.GroupVersionResource {
	found := objectIn(r.look(), "resource")
	return metav1.GroupVersionResource{
		Group: textIn(found, "group"), Version: textIn(found, "version"), Resource: textIn(found, "resource"),
	}
}

// SubResource returns status, scale and the like; empty for the resource itself.
func (r *Review) SubResource() string { return r.text("subResource") }

// Name returns the name of the object; empty for a CREATE that lets the API server generate one.
func (r *Review) Name() string { return r.text("name") }

// Namespace returns the namespace of the request; empty for cluster-scoped resources.
func (r *Review) Namespace() string { return r.text("namespace") }

// UID names this one review; a repeated or reinvoked one has another.
func (r *Review) UID() types.UID { return types.UID(r.text("uid")) }

// DryRun tells whether nothing will be stored, so that a policy must not leave a trace elsewhere.
func (r *Review) DryRun() bool {
	dry, _ := r.look()["dryRun"].(bool)
	return dry
}

// UserInfo returns who made the request.
func (r *Review) UserInfo() authenticationv1.UserInfo {
	var user authenticationv1.UserInfo
	if _, err := r.decodeMember("userInfo", &user); err != nil && r.err == nil {
		r.err = &malformed{fmt.Sprintf("admission_request is no AdmissionRequest: %v", err)}
	}
	return user
}

// Warn shows text to the user; the gateway cuts it to 256 characters.
func (r *Review) Warn(text string) {
	r.warnings = append(r.warnings, validText(text))
}

// Annotate adds an audit annotation, which becomes WEBHOOK.key. A later value replaces an earlier one.
func (r *Review) Annotate(key, value string) {
	if r.annotations == nil {
		r.annotations = make(map[string]string)
	}
	r.annotations[validText(key)] = validText(value)
}

// Warnings returns what was said with [Review.Warn] so far.
func (r *Review) Warnings() []string { return r.warnings }

// Annotations returns what was said with [Review.Annotate] so far.
func (r *Review) Annotations() map[string]string { return r.annotations }

func (r *Review) text(key string) string { return textIn(r.look(), key) }

func objectIn(members map[string]any, key string) map[string]any {
	object, _ := members[key].(map[string]any)
	return object
}

func textIn(members map[string]any, key string) string {
	text, _ := members[key].(string)
	return text
}
