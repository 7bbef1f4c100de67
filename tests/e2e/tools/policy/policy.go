// Package policy holds the ten trivial policies that both the webhook and the worker serve, so that what is
// compared is the way of asking them and not what they do.
//
// A policy decodes the whole object into a map, as one that takes any kind of object has to, and looks at its
// labels. It denies what carries the label "refused-by: policy-N" and allows everything else.
package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Count is how many policies there are: policy-0 to policy-9.
const Count = 10

const refusedBy = "refused-by"

// Request is as much of an admission.k8s.io/v1 AdmissionRequest as a policy needs.
type Request struct {
	UID       string         `json:"uid"`
	Object    map[string]any `json:"object"`
	OldObject map[string]any `json:"oldObject"`
}

// Decode reads the JSON of an AdmissionRequest.
func Decode(admissionRequest []byte) (*Request, error) {
	request := new(Request)
	if err := json.Unmarshal(admissionRequest, request); err != nil {
		return nil, fmt.Errorf("not an AdmissionRequest: %w", err)
	}
	return request, nil
}

// Name returns the name of policy n.
func Name(n int) string { return "policy-" + strconv.Itoa(n) }

// Denial returns why policy n denies the request, or "" if it allows it. A deleted object is judged by its
// last state.
func Denial(n int, request *Request) string {
	object := request.Object
	if object == nil {
		object = request.OldObject
	}
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if by, _ := labels[refusedBy].(string); by == Name(n) {
		return fmt.Sprintf("label %q names %s", refusedBy, by)
	}
	return ""
}
