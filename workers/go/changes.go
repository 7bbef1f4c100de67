package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	kubejson "sigs.k8s.io/json"

	"admission-gateway.io/worker/internal/tree"
)

// Operation is one of a JSON Patch (RFC 6902). Value is used by add, replace and test and may be any value
// that encoding/json can encode; From is used by move and copy.
type Operation = tree.Operation

// SetPatch sends these operations instead of the changes of the object. Without operations nothing changes.
func (r *Review) SetPatch(operations ...Operation) {
	r.patch, r.patchSet = operations, true
}

// Changes returns the patch of this call: that of [Review.SetPatch], or the changes of the object. It is empty
// for a policy that is not mutating.
func (r *Review) Changes() (operations []Operation, err error) {
	switch {
	case !r.mutating:
		return nil, nil
	case r.patchSet:
		return r.ownPatch()
	case !r.touched || r.err != nil:
		return nil, r.err
	}
	r.payload.step(func() { operations, err = r.derived() })
	return operations, err
}

// derived returns the changes of the object.
func (r *Review) derived() ([]Operation, error) {
	after, err := tree.Normal(r.request["object"])
	if err != nil {
		return nil, fmt.Errorf("the object cannot be written as JSON: %w", err)
	}
	_, isObject := after.(map[string]any)
	switch {
	case r.before != nil && isObject:
		return tree.Diff(r.before, after), nil
	case tree.Same(r.before, after):
		return nil, nil
	case r.before == nil:
		return nil, errors.New("the object was set, but the request has no object to change")
	}
	return nil, errors.New("the object is to stay an object; to change nothing, leave it as it is")
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
	found := r.look()["object"] != nil
	if r.err != nil {
		return nil, r.err
	}
	if !found {
		return nil, errors.New("a patch was set, but the request has no object to patch")
	}
	return operations, nil
}

// Decode decodes the object into a pointer to a Go type, such as *corev1.Pod, and returns false if the request
// has none. Fields unknown to the type are ignored, and [Review.Update] keeps them.
func (r *Review) Decode(into any) (bool, error) { return r.decodeMember("object", into) }

// DecodeOld is [Review.Decode] for the stored object.
func (r *Review) DecodeOld(into any) (bool, error) { return r.decodeMember("oldObject", into) }

func (r *Review) decodeMember(key string, into any) (found bool, err error) {
	r.look()
	r.payload.step(func() {
		var value any
		if value, err = r.document(key); value == nil || err != nil {
			return
		}
		if err = decode(value, into); err != nil {
			err = fmt.Errorf("the %s is no %T: %w", key, into, err)
		}
		found = err == nil
	})
	return found, err
}

// document returns the current value of a member; nil if there is none.
func (r *Review) document(key string) (any, error) {
	value, err := tree.Normal(r.look()[key])
	return value, cmp.Or(r.err, err)
}

// Update copies the changes of a Go value, usually one from [Review.Decode], to the object. Only differences are
// copied: fields unknown to the type are kept, and empty fields that the type adds are ignored.
func (r *Review) Update(from any) (err error) {
	r.touch() // so that the object shares nothing with the document of other calls
	r.payload.step(func() { err = r.update(from) })
	return err
}

func (r *Review) update(from any) error {
	document, err := r.document("object")
	if err != nil {
		return err
	}
	if document == nil {
		return errors.New("the request has no object to update")
	}
	fresh := reflect.New(reflect.Indirect(reflect.ValueOf(from)).Type()).Interface()
	if err := decode(document, fresh); err != nil {
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
	r.setObject(tree.Carry(document, before, after))
	return nil
}

// decode decodes a document as kube-apiserver does: keys are case-sensitive.
func decode(document, into any) error {
	return kubejson.UnmarshalCaseSensitivePreserveInts(tree.Append(nil, document), into)
}

func encoded(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%T cannot be written as JSON: %w", value, err)
	}
	return tree.Parse(text, nil)
}
