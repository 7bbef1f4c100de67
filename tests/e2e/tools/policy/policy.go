// Package policy holds the trivial policies that both the webhook and the worker serve, so that what is
// compared is the way of asking them and not what they do.
//
// A policy decodes the whole object into a map, as one that takes any kind of object has to, and looks at its
// labels. It denies what carries the label "refused-by" with its name, and allows everything else. There are
// ten, policy-N, that change nothing, and ten, labelN, that set the label of their own name.
package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Count is how many policies of each kind there are: policy-0 to policy-9, and label0 to label9.
const Count = 10

// Applied is the value of the labels that policies set.
const Applied = "applied"

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

// Policy is one of the policies.
type Policy struct {
	Name string
	// SetsLabel is whether it sets the label of its name.
	SetsLabel bool
}

// All has every policy by its name.
var All = func() map[string]Policy {
	all := make(map[string]Policy, 2*Count)
	for n := range Count {
		trivial, label := "policy-"+strconv.Itoa(n), "label"+strconv.Itoa(n)
		all[trivial], all[label] = Policy{trivial, false}, Policy{label, true}
	}
	return all
}()

// Answer returns why the policy denies the request, or "" and the JSON Patch, which may be nil, with which it
// allows it. A deleted object is judged by its last state.
func (p Policy) Answer(request *Request) (denial string, patch []byte) {
	object := request.Object
	if object == nil {
		object = request.OldObject
	}
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if by, _ := labels[refusedBy].(string); by == p.Name {
		return fmt.Sprintf("label %q names %s", refusedBy, by), nil
	}
	if !p.SetsLabel || labels[p.Name] == Applied {
		return "", nil
	}
	if labels == nil {
		return "", fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels","value":{%q:%q}}]`, p.Name, Applied)
	}
	return "", fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/%s","value":%q}]`, p.Name, Applied)
}
