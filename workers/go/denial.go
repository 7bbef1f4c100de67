package worker

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Denial is the error with which a policy denies a request; [Deny] makes one. It may be wrapped in other
// errors and is found with [errors.As].
type Denial struct {
	// Message is shown to the user: the field, what is wrong with it, and what to do.
	Message string
	// Code is the HTTP status, 400 to 599; any other value is sent as 400.
	Code int
	// Reason is machine-readable, such as Forbidden; empty: chosen by the gateway.
	Reason metav1.StatusReason
	// Causes name fields and their problems, in order.
	Causes []metav1.StatusCause
	// RetryAfterSeconds is the delay of the client's retry, sent as the header Retry-After; values below 1 are
	// ignored.
	RetryAfterSeconds int32
	// Name, Group, Kind and UID identify the object of the denial. With the reason Invalid kubectl
	// prints "The KIND "NAME" is invalid" instead of the message.
	Name, Group, Kind string
	UID               types.UID
}

// Error returns the message.
func (d *Denial) Error() string { return d.Message }

// DenyOption is an option of [Deny].
type DenyOption func(*Denial)

// Deny returns the error that denies the request: with code 403 by default, and this message.
func Deny(message string, options ...DenyOption) error {
	denial := &Denial{Message: message, Code: http.StatusForbidden}
	for _, option := range options {
		option(denial)
	}
	return denial
}

// WithCode sets the HTTP status.
func WithCode(code int) DenyOption {
	return func(denial *Denial) { denial.Code = code }
}

// WithReason sets the reason.
func WithReason(reason metav1.StatusReason) DenyOption {
	return func(denial *Denial) { denial.Reason = reason }
}

// WithField names the offending field, such as spec.containers[0].image: a first cause with the denial's
// message.
func WithField(field string) DenyOption {
	return func(denial *Denial) {
		own := Cause(denial.Message, field)
		denial.Causes = append([]metav1.StatusCause{own}, denial.Causes...)
	}
}

// WithCauses adds causes.
func WithCauses(causes ...metav1.StatusCause) DenyOption {
	return func(denial *Denial) { denial.Causes = append(denial.Causes, causes...) }
}

// WithRetryAfterSeconds sets the delay of the client's retry.
func WithRetryAfterSeconds(seconds int32) DenyOption {
	return func(denial *Denial) { denial.RetryAfterSeconds = seconds }
}

// WithName sets the name of the denial's object.
func WithName(name string) DenyOption {
	return func(denial *Denial) { denial.Name = name }
}

// WithKind sets the API group and the kind of the denial's object.
func WithKind(group, kind string) DenyOption {
	return func(denial *Denial) { denial.Group, denial.Kind = group, kind }
}

// WithUID sets the uid of the denial's object.
func WithUID(uid types.UID) DenyOption {
	return func(denial *Denial) { denial.UID = uid }
}

// CauseTypeForbidden is the CauseType of Kubernetes for a well-formed value that a policy does not permit.
const CauseTypeForbidden metav1.CauseType = "FieldValueForbidden"

// Cause returns the cause that the field has a forbidden value. For other types write a metav1.StatusCause.
func Cause(message, field string) metav1.StatusCause {
	return metav1.StatusCause{Type: CauseTypeForbidden, Message: message, Field: field}
}
