package worker

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"admission-gateway.io/worker/internal/tree"
)

// Review is one admission request for one policy.
//
// It is parsed on first use and belongs to one call: other policies do not see changes. It must not be used by
// several goroutines concurrently, nor changed after the policy has returned.
//
// Malformed JSON reads as empty, and the outcome of the call is then an error whatever the policy returns;
// [Review.Err] returns that error.
type Review struct {
	// payload is shared with other calls, and so is what it has parsed.
	payload  *payload
	mutating bool

	// request is the AdmissionRequest; nil before the first use.
	request map[string]any
	// touched is set when a mutating policy may have changed the object, a copy of before.
	touched         bool
	before          any
	namespaceObject map[string]any
	err             error
	traceparent     string
	// parametersJSON has the parameters of the call; empty: none.
	parametersJSON []byte
	parameters     any

	patch       []Operation
	patchSet    bool
	warnings    []string
	annotations map[string]string
}

// malformed is the error of a payload that is not a JSON object.
type malformed struct{ text string }

func (m *malformed) Error() string { return m.text }

// ParseReview returns a Review for a unit test, from the JSON of an AdmissionReview or of the
// AdmissionRequest in it. It records changes as for a mutating policy.
func ParseReview(document []byte, options ...ReviewOption) (*Review, error) {
	members, err := parseObject("review", document, nil)
	if err != nil {
		return nil, err
	}
	if request, ok := members["request"].(map[string]any); ok {
		members = request
	}
	review := &Review{payload: &payload{requestJSON: tree.Append(nil, members)}, mutating: true}
	for _, option := range options {
		option(review)
	}
	return review, nil
}

// ReviewOption is an option of [ParseReview].
type ReviewOption func(*Review)

// WithTraceparent sets the trace context.
func WithTraceparent(traceparent string) ReviewOption {
	return func(review *Review) { review.traceparent = traceparent }
}

// WithNamespaceObject sets the JSON of the Namespace of the request.
func WithNamespaceObject(document []byte) ReviewOption {
	return func(review *Review) { review.payload.namespaceJSON = bytes.Clone(document) }
}

// Err returns the error of a malformed payload that was read; nil if there is none.
func (r *Review) Err() error { return r.err }

// look returns the request, which is not to be changed.
func (r *Review) look() map[string]any {
	if r.request == nil {
		request, err := r.payload.parse()
		r.request, r.err = request, cmp.Or(r.err, err)
	}
	return r.request
}

// lend is look for a policy that gets a part other than a mutating policy's object.
func (r *Review) lend() map[string]any {
	request := r.look()
	r.payload.lend()
	return request
}

// touch returns the request with an object that a mutating policy may change.
func (r *Review) touch() map[string]any {
	if !r.mutating {
		return r.lend()
	}
	request := r.look()
	if !r.touched {
		r.touched, r.request = true, maps.Clone(request)
		if object, ok := request["object"]; ok {
			r.before = object
			r.payload.step(func() { r.request["object"] = runtime.DeepCopyJSONValue(object) })
		}
	}
	return r.request
}

// Request returns the unchanged AdmissionRequest. Numbers are json.Number.
func (r *Review) Request() map[string]any {
	r.lend()
	return r.touch()
}

// Object returns the object of the request, which a mutating policy may change; nil if there is
// none (DELETE). For CONNECT it is an options object, such as PodExecOptions. Numbers are json.Number.
func (r *Review) Object() map[string]any { return objectIn(r.touch(), "object") }

// SetObject replaces the object. It may have any values that encoding/json can encode.
func (r *Review) SetObject(object map[string]any) { r.setObject(object) }

func (r *Review) setObject(object any) {
	request := r.touch()
	if !r.mutating {
		request = maps.Clone(request)
		r.request = request
	}
	request["object"] = object
}

// OldObject returns the stored object, for UPDATE and DELETE; otherwise nil.
func (r *Review) OldObject() map[string]any { return objectIn(r.lend(), "oldObject") }

// NamespaceObject returns the Namespace of the request; nil if there is none or it is unknown.
func (r *Review) NamespaceObject() map[string]any {
	if r.namespaceObject == nil && len(r.payload.namespaceJSON) > 0 {
		r.payload.step(func() {
			object, err := parseObject("namespace_object", r.payload.namespaceJSON, nil)
			r.namespaceObject, r.err = object, cmp.Or(r.err, err)
		})
	}
	return r.namespaceObject
}

// RequestJSON returns the JSON of the AdmissionRequest; `object` has the changes of earlier webhooks, but not those of
// this policy. It must not be changed. An error says that it is malformed.
func (r *Review) RequestJSON() ([]byte, error) {
	if r.payload.patches == nil {
		return r.payload.requestJSON, nil
	}
	request, err := r.payload.parse()
	if r.err = cmp.Or(r.err, err); err != nil {
		return nil, err
	}
	var text []byte
	r.payload.step(func() { text = tree.Append(nil, request) })
	return text, nil
}

// NamespaceJSON returns the JSON of the Namespace of the request, which must not be changed; empty if there is none or it
// is unknown.
func (r *Review) NamespaceJSON() []byte { return r.payload.namespaceJSON }

// Shared returns what make has returned for the key, for the calls of several policies on the same request and object as
// far as they are evaluated one after another. So what they derive from it is derived once. It must not be changed.
func (r *Review) Shared(key any, make func() any) any {
	if found, ok := r.payload.made[key]; ok {
		return found
	}
	found := make()
	r.payload.keep(key, found)
	return found
}

// Operation returns CREATE, UPDATE, DELETE or CONNECT.
func (r *Review) Operation() admissionv1.Operation {
	return admissionv1.Operation(r.text("operation"))
}

// Kind returns group, version and kind of the object.
func (r *Review) Kind() metav1.GroupVersionKind {
	return metav1.GroupVersionKind{
		Group: r.text("kind", "group"), Version: r.text("kind", "version"), Kind: r.text("kind", "kind"),
	}
}

// Resource returns group, version and resource of the request.
func (r *Review) Resource() metav1.GroupVersionResource {
	return metav1.GroupVersionResource{
		Group: r.text("resource", "group"), Version: r.text("resource", "version"), Resource: r.text("resource", "resource"),
	}
}

// SubResource returns status, scale and the like; empty for the resource itself.
func (r *Review) SubResource() string { return r.text("subResource") }

// Name returns the name of the object; empty for a CREATE with a generated name.
func (r *Review) Name() string { return r.text("name") }

// Namespace returns the namespace of the request; empty for cluster-scoped resources.
func (r *Review) Namespace() string { return r.text("namespace") }

// UID is the unique id of this review; a repetition or reinvocation has another one.
func (r *Review) UID() types.UID { return types.UID(r.text("uid")) }

// Traceparent is the W3C Trace Context of the gateway's span for this call, with which a policy that traces continues
// the trace; empty if there is none.
func (r *Review) Traceparent() string { return validTraceparent(r.traceparent) }

// DryRun reports whether the request will not be stored; a policy must have no side effects then.
func (r *Review) DryRun() bool {
	dry, _ := r.value("dryRun").(bool)
	return dry
}

// UserInfo returns the user of the request.
func (r *Review) UserInfo() authenticationv1.UserInfo {
	var user authenticationv1.UserInfo
	if _, err := r.decodeMember("userInfo", &user); err != nil && r.err == nil {
		r.err = &malformed{fmt.Sprintf("admission_request is no AdmissionRequest: %v", err)}
	}
	return user
}

// Warn adds a warning for the user; the gateway cuts it to 256 characters.
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

// Warnings returns the warnings so far.
func (r *Review) Warnings() []string { return r.warnings }

// Annotations returns the annotations so far.
func (r *Review) Annotations() map[string]string { return r.annotations }

func (r *Review) text(path ...string) string {
	text, _ := r.value(path...).(string)
	return text
}

// value returns the value at a path, from what is parsed already.
func (r *Review) value(path ...string) any {
	if r.request == nil && r.payload.request == nil {
		return r.Read(path...).Any()
	}
	members := r.look()
	for _, key := range path[:len(path)-1] {
		members = objectIn(members, key)
	}
	return members[path[len(path)-1]]
}

func objectIn(members map[string]any, key string) map[string]any {
	object, _ := members[key].(map[string]any)
	return object
}
