package tree

import (
	"encoding/json"
	"unicode/utf8"
)

// maxDepth is how deep a Go value is looked into. What is deeper may contain itself, and encoding/json says so.
const maxDepth = 1000

// Normal returns value as a document. Whatever other Go value stands in it is taken for what encoding/json
// writes of it. Nothing that value consists of is changed: it may be a package's variable that other calls use
// at the same time.
func Normal(value any) (any, error) {
	if isDocument(value, 0) {
		return value, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return Parse(text)
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

// isNumber tells whether text is a JSON number: of all values only these begin like one.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || '0' <= text[0] && text[0] <= '9') && json.Valid([]byte(text))
}
