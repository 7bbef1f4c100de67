package tree

import (
	"slices"
	"strconv"
	"strings"
)

// Bounds of a patch. The documents may be malicious, and applying a patch costs CPU: above these bounds whole
// members are replaced, even if that is longer.
const (
	// maxOperations is kube-apiserver's limit for a user's JSON Patch.
	maxOperations = 10_000
	// maxShifted bounds the list items that change their index, summed over a patch.
	maxShifted = 100_000_000
	// maxPathParts bounds the parts of all its paths, and maxPathBytes their length: keys may be long.
	maxPathParts = 500_000
	maxPathBytes = 8 << 20
	// searchedLevels is the number of levels at which whole values are compared before their parts, and the
	// number of nested lists that are compared: a deeper list is replaced as a whole. Each level reads all levels
	// below it.
	searchedLevels = 8
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

// Diff returns the operations that turn before into after: add, remove and replace on paths that exist, keys
// in order of their code points. Lists are aligned by their common head and tail, which is sufficient
// for typical policies and cheaper than an edit distance.
//
// Neither is changed; the operations share values with after.
func Diff(before, after any) []Operation {
	script := &script{}
	script.value("", before, after, levels{})
	if script.tooMuch {
		return replacedMembers(before, after)
	}
	return script.operations
}

// levels has the depth, and the number of lists in it.
type levels struct{ all, lists int }

type script struct {
	operations []Operation
	shifted    int
	parts      int
	bytes      int
	tooMuch    bool
}

// note adds an operation that changes the index of shifted list items.
func (s *script) note(operation Operation, shifted int) {
	s.shifted += shifted
	s.bytes += len(operation.Path)
	parts := strings.Count(operation.Path, "/")
	s.parts += parts
	if len(s.operations) == maxOperations || s.shifted > maxShifted || parts > maxLevels || s.parts > maxPathParts || s.bytes > maxPathBytes {
		s.tooMuch = true
	}
	if !s.tooMuch {
		s.operations = append(s.operations, operation)
	}
}

func (s *script) value(path string, before, after any, at levels) {
	if s.tooMuch {
		return
	}
	switch before := before.(type) {
	case map[string]any:
		if after, ok := after.(map[string]any); ok {
			s.object(path, before, after, levels{at.all + 1, at.lists})
			return
		}
	case []any:
		if after, ok := after.([]any); ok && at.lists < searchedLevels {
			s.array(path, before, after, levels{at.all + 1, at.lists + 1})
			return
		}
	}
	if !Same(before, after) {
		s.note(Operation{Op: "replace", Path: path, Value: after}, 0)
	}
}

func (s *script) object(path string, before, after map[string]any, at levels) {
	for _, key := range keysToLookInto(before, after, at.all <= searchedLevels) {
		if s.tooMuch {
			return
		}
		old, had := before[key]
		value, has := after[key]
		child := path + "/" + escape(key)
		switch {
		case !has:
			s.note(Operation{Op: "remove", Path: child}, 0)
		case !had:
			s.note(Operation{Op: "add", Path: child, Value: value}, 0)
		default:
			s.value(child, old, value, at)
		}
	}
}

func (s *script) array(path string, before, after []any, at levels) {
	head := sharedHead(before, after)
	tail := sharedTail(before[head:], after[head:])
	old, added := before[head:len(before)-tail], after[head:len(after)-tail]
	paired := min(len(old), len(added))
	child := func(index int) string { return path + "/" + strconv.Itoa(head+index) }
	for index := 0; index < paired && !s.tooMuch; index++ {
		s.value(child(index), old[index], added[index], at)
	}
	// From the end, so that earlier indices remain valid.
	for index := len(old) - 1; index >= paired && !s.tooMuch; index-- {
		s.note(Operation{Op: "remove", Path: child(index)}, tail)
	}
	for index := paired; index < len(added) && !s.tooMuch; index++ {
		s.note(Operation{Op: "add", Path: child(index), Value: added[index]}, tail)
	}
}

func replacedMembers(before, after any) []Operation {
	whole := []Operation{{Op: "replace", Path: "", Value: after}}
	old, wasObject := before.(map[string]any)
	made, isObject := after.(map[string]any)
	if !wasObject || !isObject {
		return whole
	}
	var operations []Operation
	for _, key := range keysToLookInto(old, made, true) {
		path := "/" + escape(key)
		value, has := made[key]
		if _, had := old[key]; !has {
			operations = append(operations, Operation{Op: "remove", Path: path})
		} else if !had {
			operations = append(operations, Operation{Op: "add", Path: path, Value: value})
		} else {
			operations = append(operations, Operation{Op: "replace", Path: path, Value: value})
		}
	}
	if len(operations) > maxOperations {
		return whole
	}
	return operations
}

// keysToLookInto returns the keys of members that differ, in order; with searched false also those of lists
// and objects in both that may differ.
func keysToLookInto(before, after map[string]any, searched bool) []string {
	var keys []string
	for key, old := range before {
		value, has := after[key]
		if !has || (!searched && isContainer(old)) || !Same(old, value) {
			keys = append(keys, key)
		}
	}
	for key := range after {
		if _, had := before[key]; !had {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func isContainer(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// escape returns key as a token of a JSON Pointer (RFC 6901).
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
