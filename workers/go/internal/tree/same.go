package tree

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Same reports whether two documents are equal. 1, 1.0 and true differ; 1.0 and 1.00 are equal, and so are zeros
// of either sign.
func Same(left, right any) bool {
	switch left := left.(type) {
	case nil:
		return right == nil
	case bool:
		right, ok := right.(bool)
		return ok && left == right
	case string:
		right, ok := right.(string)
		return ok && left == right
	case json.Number:
		right, ok := right.(json.Number)
		return ok && (left == right || sameNumber(string(left), string(right)))
	case []any:
		right, ok := right.([]any)
		return ok && len(left) == len(right) && sharedHead(left, right) == len(left)
	case map[string]any:
		right, ok := right.(map[string]any)
		if !ok || len(left) != len(right) {
			return false
		}
		for key, member := range left {
			other, ok := right[key]
			if !ok || !Same(member, other) {
				return false
			}
		}
		return true
	}
	return false
}

func sameNumber(left, right string) bool {
	leftWhole, rightWhole := !strings.ContainsAny(left, ".eE"), !strings.ContainsAny(right, ".eE")
	if leftWhole != rightWhole {
		return false
	}
	if leftWhole {
		return (left == "0" || left == "-0") && (right == "0" || right == "-0")
	}
	leftValue, leftErr := strconv.ParseFloat(left, 64)
	rightValue, rightErr := strconv.ParseFloat(right, 64)
	return leftErr == nil && rightErr == nil && leftValue == rightValue
}

// sharedHead returns how many items two lists have in common at their beginning.
func sharedHead(left, right []any) int {
	for index := range min(len(left), len(right)) {
		if !Same(left[index], right[index]) {
			return index
		}
	}
	return min(len(left), len(right))
}

// sharedTail is sharedHead from the end.
func sharedTail(left, right []any) int {
	for count := range min(len(left), len(right)) {
		if !Same(left[len(left)-1-count], right[len(right)-1-count]) {
			return count
		}
	}
	return min(len(left), len(right))
}
