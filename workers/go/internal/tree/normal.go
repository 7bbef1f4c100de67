package tree

import (
	"encoding/json"
	"unicode/utf8"
)

// maxDepth is the depth to which a Go value is read. A deeper value may be cyclic, which encoding/json reports.
const maxDepth = 1000

// Normal returns value as a document. Other Go values in it are converted by encoding/json. The value is not
// changed: other calls may use it concurrently.
func Normal(value any) (any, error) {
	if isDocument(value, 0) {
		return value, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return Parse(text, nil)
}

func isDocument(value any, depth int) bool {
	switch value := value.(type) {
	case nil, bool:
		return true
	case string:
		return utf8.ValidString(value)
	case json.Number:
		return isNumber(string(value))
	case []any:
		if value == nil || depth == maxDepth {
			return false
		}
		for _, item := range value {
			if !isDocument(item, depth+1) {
				return false
			}
		}
		return true
	case map[string]any:
		if value == nil || depth == maxDepth {
			return false
		}
		for key, member := range value {
			if !utf8.ValidString(key) || !isDocument(member, depth+1) {
				return false
			}
		}
		return true
	}
	return false
}

// isNumber reports whether the JSON value text is a number, from its first character.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || '0' <= text[0] && text[0] <= '9') && json.Valid([]byte(text))
}
