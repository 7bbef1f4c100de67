package tree

import "maps"

// Carry returns document with the changes that lead from before to after, which are both encoded
// from a Go type: fields unknown to the type are kept, and fields that it adds (creationTimestamp: null) are
// ignored. The document is not changed; the result shares values with it.
//
// List items correspond by index; in lists of different length by the common head and tail.
func Carry(document, before, after any) any {
	if Same(before, after) {
		return document
	}
	switch after := after.(type) {
	case map[string]any:
		before, wasObject := before.(map[string]any)
		document, isObject := document.(map[string]any)
		if wasObject && isObject {
			return carryMembers(document, before, after)
		}
	case []any:
		before, wasList := before.([]any)
		document, isList := document.([]any)
		if wasList && isList && len(before) == len(document) {
			return carryItems(document, before, after)
		}
	}
	return after
}

func carryMembers(document, before, after map[string]any) map[string]any {
	result := maps.Clone(document)
	for key := range before {
		if _, ok := after[key]; !ok {
			delete(result, key)
		}
	}
	for key, value := range after {
		old, had := before[key]
		original, ok := document[key]
		switch {
		case had && ok:
			result[key] = Carry(original, old, value)
		case !had || !Same(old, value):
			result[key] = value
		}
	}
	return result
}

func carryItems(document, before, after []any) []any {
	head := sharedHead(before, after)
	tail := sharedTail(before[head:], after[head:])
	result := make([]any, 0, len(after))
	result = append(result, document[:head]...)
	for index := head; index < len(after)-tail; index++ {
		if len(before) == len(after) {
			result = append(result, Carry(document[index], before[index], after[index]))
		} else {
			result = append(result, after[index])
		}
	}
	return append(result, document[len(document)-tail:]...)
}
