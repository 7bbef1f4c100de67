package tree

import (
	"maps"
	"strings"

	"github.com/wI2L/jsondiff"
)

// Bounds of a derived patch. The documents may be hostile, jsondiff has no bounds, and applying a patch costs CPU: above
// these, whole members of the object are replaced, even if that is longer.
const (
	// maxOperations is kube-apiserver's limit for a user's JSON Patch.
	maxOperations = 10_000
	// maxShifted bounds the list items that change their index, summed over a patch.
	maxShifted = 100_000_000
	// maxPathParts bounds the parts of all its paths.
	maxPathParts = 500_000
	// maxDiffDepth bounds the parts of one path: maxOperations such paths have maxPathParts.
	maxDiffDepth = maxPathParts / maxOperations
	// maxDiffSize bounds the memory of operations for all values: operationBytes and the path of each. It also bounds what
	// jsondiff compares, which reads each value once for each level above it.
	maxDiffSize    = 16 << 20
	operationBytes = 64
	// Lists of at most maxAlignedItems in documents of at most maxAlignedSize are aligned by their longest common
	// subsequence, which takes quadratic time. The items of others are compared by index.
	maxAlignedItems = 32
	maxAlignedSize  = 1 << 20
	// partOfString is how many bytes of a string take as long to compare as another value.
	partOfString = 64
)

// Operation is one of a JSON Patch. Value is used by add, replace and test, From by move and copy.
type Operation struct {
	Op    string
	Path  string
	From  string
	Value any
}

// AppendPatch writes operations whose values are documents.
func AppendPatch(text []byte, operations []Operation) []byte {
	written := make([]any, len(operations))
	for index, operation := range operations {
		members := map[string]any{"op": operation.Op, "path": operation.Path}
		if operation.From != "" || operation.Op == "move" || operation.Op == "copy" {
			members["from"] = operation.From
		}
		if operation.Value != nil || operation.Op == "add" || operation.Op == "replace" || operation.Op == "test" {
			members["value"] = operation.Value
		}
		written[index] = members
	}
	return Append(text, written)
}

// Diff returns operations that turn before into after: add, remove and replace on paths that exist.
//
// Neither is changed; the operations share values with after.
func Diff(before, after any) []Operation {
	all, wasObject := before.(map[string]any)
	now, isObject := after.(map[string]any)
	if !wasObject || !isObject {
		return []Operation{{Op: "replace", Path: "", Value: after}}
	}
	old, made := differing(all, now)
	var size diffSize
	size.add(old, 0, 0)
	size.add(made, 0, 0)
	if size.bytes > maxDiffSize {
		return replacedMembers(old, made, after)
	}
	differ := &jsondiff.Differ{}
	if size.bytes <= maxAlignedSize && size.items <= maxAlignedItems {
		differ = differ.WithOpts(jsondiff.LCS())
	}
	differ.Compare(old, made)
	found := differ.Patch()
	if len(found) > maxOperations {
		return replacedMembers(old, made, after)
	}
	operations := make([]Operation, len(found))
	for index, operation := range found {
		operations[index] = Operation{Op: operation.Type, Path: operation.Path, Value: operation.Value}
	}
	return operations
}

// differing returns the members of two objects that differ.
func differing(before, after map[string]any) (old, made map[string]any) {
	old, made = make(map[string]any), maps.Clone(after)
	for key, value := range before {
		if other, has := after[key]; has && Same(value, other) {
			delete(made, key)
		} else {
			old[key] = value
		}
	}
	return old, made
}

// diffSize says how much there is to compare: the bytes of operations for all values, with the paths of long strings
// several times, and the items of the longest list.
type diffSize struct{ bytes, items int }

// add adds a value at a path of so many bytes. It ends early when it is too much.
func (s *diffSize) add(value any, path, depth int) {
	if depth > maxDiffDepth {
		s.bytes = maxDiffSize
	}
	s.bytes += operationBytes + path
	switch value := value.(type) {
	case string:
		s.bytes += path * (len(value) / partOfString)
	case []any:
		s.items = max(s.items, len(value))
		for _, item := range value {
			if s.bytes > maxDiffSize {
				return
			}
			s.add(item, path+len("/0"), depth+1)
		}
	case map[string]any:
		for key, member := range value {
			if s.bytes > maxDiffSize {
				return
			}
			s.add(member, path+len("/")+len(key), depth+1)
		}
	}
}

// replacedMembers returns the operations that replace differing members, or the whole object.
func replacedMembers(old, made map[string]any, whole any) []Operation {
	var operations []Operation
	for key := range old {
		if _, has := made[key]; !has {
			operations = append(operations, Operation{Op: "remove", Path: "/" + escape(key)})
		}
	}
	for key, value := range made {
		operation := Operation{Op: "replace", Path: "/" + escape(key), Value: value}
		if _, had := old[key]; !had {
			operation.Op = "add"
		}
		operations = append(operations, operation)
	}
	if len(operations) > maxOperations {
		return []Operation{{Op: "replace", Path: "", Value: whole}}
	}
	return operations
}

// escape returns key as a token of a JSON Pointer (RFC 6901).
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
