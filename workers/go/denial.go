package worker

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Denial is the error with which a policy denies a request; [Deny] makes one. It may be wrapped in other
// errors and is found with [errors.As].
type Denial struct {
	// Message is shown to the user who made the request: one sentence that says what to change.
	Message string
	// Code is the HTTP status the user gets, 400 to 599; anything else is answered as 400.
	Code int
	// Reason is for machines, such as Forbidden; left to the gateway where empty.
	Reason metav1.StatusReason
	// Causes say what is wrong with which field, and are shown in this order.
	Causes []metav1.StatusCause
	// RetryAfterSeconds is how long the client is to wait before it tries again, which it reads in the header
	// Retry-After; anything below 1 is left out.
	RetryAfterSeconds int32
	// Name, Group, Kind and UID are of the object that the denial is about. With the reason Invalid kubectl
	// prints "The KIND "NAME" is invalid" instead of the message.
	Name, Group, Kind string
	UID               types.UID
}

// Error returns the message.
func (d *Denial) Error() string { return d.Message }

// DenyOption adds to what [Deny] says.
type DenyOption func(*Denial)

// Deny returns the error that denies the request: 403 with this message, unless an option says otherwise.
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

// WithField names the offending field, such as spec.containers[0].image. It is short for one cause that has
// the denial's message, and is put before the other causes.
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

// WithRetryAfterSeconds says how long the client is to wait before it tries again.
func WithRetryAfterSeconds(seconds int32) DenyOption {
	return func(denial *Denial) { denial.RetryAfterSeconds = seconds }
}

// WithName names the object that the denial is about.
func WithName(name string) DenyOption {
	return func(denial *Denial) { denial.Name = name }
}

// WithKind sets the API group and the kind of the object that the denial is about.
func WithKind(group, kind string) DenyOption {
	return func(denial *Denial) { denial.Group, denial.Kind = group, kind }
}

// WithUID sets the uid of the object that the denial is about.
func WithUID(uid types.UID) DenyOption {
	return func(denial *Denial) { denial.UID = uid }
}

// CauseTypeForbidden is Kubernetes' word for a value that is well-formed but that a policy does not permit.
const CauseTypeForbidden metav1.CauseType = "FieldValueForbidden"

// Cause returns the cause that the field has a forbidden value. For other types write a metav1.StatusCause.
func Cause(message, field string) metav1.StatusCause {
	return metav1.StatusCause{Type: CauseTypeForbidden, Message: message, Field: field}
}
