package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	kubejson "sigs.k8s.io/json"

	"admission-gateway.io/worker/internal/tree"
)

// Operation is one of a JSON Patch (RFC 6902). Value counts for add, replace and test and may be whatever
// encoding/json can write; From counts for move and copy.
type Operation = tree.Operation

// SetPatch answers with these operations instead of what was changed in the object. None at all says that
// nothing changes.
func (r *Review) SetPatch(operations ...Operation) {
	r.patch, r.patchSet = operations, true
}

// Changes returns the patch of this call: that of [Review.SetPatch], or what was changed in the object.
// It is always empty for a policy that is not mutating.
func (r *Review) Changes() ([]Operation, error) {
	switch {
	case !r.mutating:
		return nil, nil
	case r.patchSet:
		return r.ownPatch()
	case !r.touched || r.err != nil:
		return nil, r.err
	}
	after := r.look("")["object"]
	// Read once more rather than copied beforehand: most policies that look do not change anything, but all
	// would pay for the copy.
	var before any
	if r.objectText != "" {
		before = tree.Raw(r.objectText).Parse()
	}
	if tree.Same(before, after) {
		return nil, nil
	}
	if before == nil {
		return nil, errors.New("the object was set, but the request has no object to change")
	}
	if object, ok := after.(map[string]any); !ok || object == nil {
		return nil, errors.New("the object is to stay an object; to change nothing, leave it as it is")
	}
	operations, err := tree.Diff(before, after)
	if err != nil {
		return nil, fmt.Errorf("the object cannot be written as JSON: %w", err)
	}
	return operations, nil
}

func (r *Review) ownPatch() ([]Operation, error) {
	operations := make([]Operation, len(r.patch))
	for index, operation := range r.patch {
		value, err := tree.Normal(operation.Value)
		if err != nil {
			return nil, fmt.Errorf("operation %d of the patch cannot be written as JSON: %w", index, err)
		}
		operation.Value = value
		operations[index] = operation
	}
	if len(operations) == 0 {
		return nil, nil
	}
	found := r.hasObject()
	if r.err != nil {
		return nil, r.err
	}
	if !found {
		return nil, errors.New("a patch was set, but the request has no object to patch")
	}
	return operations, nil
}

func (r *Review) hasObject() bool {
	switch object := r.look("")["object"].(type) {
	case nil:
		return false
	case tree.Raw:
		return object != "null"
	case map[string]any:
		return object != nil
	}
	return true
}

// Decode reads the object into a pointer to a Go type, such as *corev1.Pod, and returns false if the request
// has none. Fields that the type does not know are left out; [Review.Update] keeps them nonetheless.
func (r *Review) Decode(into any) (bool, error) {
	text, err := r.currentObject()
	if text == "" || err != nil {
		return false, err
	}
	if err := decode(text, into); err != nil {
		return false, fmt.Errorf("the object is no %T: %w", into, err)
	}
	return true, nil
}

// DecodeOld is [Review.Decode] for the stored object.
func (r *Review) DecodeOld(into any) (bool, error) {
	r.look("")
	value := r.request["oldObject"]
	if value == nil || r.err != nil {
		return false, r.err
	}
	text, ok := value.(tree.Raw)
	if !ok {
		normal, err := tree.Normal(value)
		if err != nil {
			return false, err
		}
		text = tree.Raw(tree.Append(nil, normal))
	}
	if text == "null" {
		return false, nil
	}
	if err := decode(string(text), into); err != nil {
		return false, fmt.Errorf("the old object is no %T: %w", into, err)
	}
	return true, nil
}

// Update makes the object say what a Go value says, usually one from [Review.Decode] that was changed since.
// Only what differs is carried over, so that fields which the type does not know stay as they are, and empty
// ones which it writes by itself do not appear.
func (r *Review) Update(from any) error {
	text, err := r.currentObject()
	if err != nil {
		return err
	}
	if text == "" {
		return errors.New("the request has no object to update")
	}
	fresh := reflect.New(reflect.Indirect(reflect.ValueOf(from)).Type()).Interface()
	if err := decode(text, fresh); err != nil {
		return fmt.Errorf("the object is no %T: %w", from, err)
	}
	before, err := encoded(fresh)
	if err != nil {
		return err
	}
	after, err := encoded(from)
	if err != nil {
		return err
	}
	document, err := tree.Parse(text)
	if err != nil {
		return err
	}
	r.look("")["object"] = tree.Carry(document, before, after)
	r.touched = true
	return nil
}

// currentObject returns the text of the object as it is now; empty if there is none.
func (r *Review) currentObject() (string, error) {
	members := r.look("")
	if r.err != nil {
		return "", r.err
	}
	if !r.touched {
		if r.objectText == "null" {
			return "", nil
		}
		return r.objectText, nil
	}
	value, err := tree.Normal(members["object"])
	if err != nil || value == nil {
		return "", err
	}
	return string(tree.Append(nil, value)), nil
}

// decode reads JSON as kube-apiserver does: the case of keys counts.
func decode(text string, into any) error {
	return kubejson.UnmarshalCaseSensitivePreserveInts([]byte(text), into)
}

func encoded(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%T cannot be written as JSON: %w", value, err)
	}
	return tree.Parse(string(text))
}
