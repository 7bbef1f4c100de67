package main

import (
	"fmt"
	"strconv"
)

// count is how many policies of each kind there are: policy-0 to policy-9, and label0 to label9.
const count = 10

// applied is the value of the labels that policies set.
const applied = "applied"

const refusedBy = "refused-by"

// request is as much of an admission.k8s.io/v1 AdmissionRequest as a policy needs. The whole object is a map,
// as for a policy that takes any kind of object.
type request struct {
	UID       string         `json:"uid"`
	Object    map[string]any `json:"object"`
	OldObject map[string]any `json:"oldObject"`
}

// policy denies what carries the label "refused-by" with its name, and allows everything else. Policies that
// change nothing and policies that set the label of their own name are those of tests/e2e/sdk_worker, too.
type policy struct {
	name string
	// setsLabel is whether it sets the label of its name.
	setsLabel bool
}

// all has every policy by its name.
var all = func() map[string]policy {
	all := make(map[string]policy, 2*count)
	for n := range count {
		trivial, label := "policy-"+strconv.Itoa(n), "label"+strconv.Itoa(n)
		all[trivial], all[label] = policy{trivial, false}, policy{label, true}
	}
	return all
}()

// answer returns why the policy denies the request, or "" and the JSON Patch, which may be nil, with which it
// allows it. A deleted object is judged by its last state.
func (p policy) answer(request *request) (denial string, patch []byte) {
	object := request.Object
	if object == nil {
		object = request.OldObject
	}
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if by, _ := labels[refusedBy].(string); by == p.name {
		return fmt.Sprintf("label %q names %s", refusedBy, by), nil
	}
	if !p.setsLabel || labels[p.name] == applied {
		return "", nil
	}
	if labels == nil {
		return "", fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels","value":{%q:%q}}]`, p.name, applied)
	}
	return "", fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/%s","value":%q}]`, p.name, applied)
}
