package tree

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Normal returns value as a document. Whatever Go value stands in it is taken for what encoding/json writes
// of it. Nothing that value consists of is changed: it may be a package's variable that other calls use at
// the same time.
func Normal(value any) (any, error) {
	result, _, err := normal(value, 0)
	return result, err
}

// shallow is Normal for the value itself: what is in a list or an object it leaves as it is.
func shallow(value any) (any, error) {
	switch given := value.(type) {
	case nil, bool, string, json.Number:
		return value, nil
	case []any:
		if given != nil {
			return value, nil
		}
	case map[string]any:
		if given != nil {
			return value, nil
		}
	}
	return Normal(value)
}

// normal also says whether the result is another value than the one given.
func normal(value any, depth int) (result any, other bool, err error) {
	if depth > maxDepth {
		return nil, false, errTooDeep // or it contains itself
	}
	switch value := value.(type) {
	case nil, bool:
		return value, false, nil
	case string:
		if utf8.ValidString(value) {
			return value, false, nil
		}
		return strings.ToValidUTF8(value, "\ufffd"), true, nil
	case json.Number:
		parser := parser{text: string(value)}
		if err := parser.number(); err != nil || parser.at < len(value) {
			return nil, false, fmt.Errorf("%q is no JSON number", string(value))
		}
		return value, false, nil
	case int:
		return json.Number(strconv.Itoa(value)), true, nil
	case int64:
		return json.Number(strconv.FormatInt(value, 10)), true, nil
	case []any:
		return normalItems(value, depth)
	case map[string]any:
		return normalMembers(value, depth)
	case Raw:
		return value.Parse(), true, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, false, err
	}
	result, err = Parse(string(text))
	return result, true, err
}

func normalItems(items []any, depth int) (any, bool, error) {
	if items == nil {
		return nil, true, nil
	}
	result, copied := items, false
	for index, item := range items {
		made, other, err := normal(item, depth+1)
		if err != nil {
			return nil, false, err
		}
		if !other {
			continue
		}
		if !copied {
			result, copied = slices.Clone(items), true
		}
		result[index] = made
	}
	return result, copied, nil
}

func normalMembers(members map[string]any, depth int) (any, bool, error) {
	if members == nil {
		return nil, true, nil
	}
	result, copied := members, false
	for key, member := range members {
		made, other, err := normal(member, depth+1)
		if err != nil {
			return nil, false, err
		}
		valid := utf8.ValidString(key)
		if valid && !other {
			continue
		}
		if !copied {
			result, copied = maps.Clone(members), true
		}
		if !valid {
			delete(result, key)
			key = strings.ToValidUTF8(key, "\ufffd")
		}
		result[key] = made
	}
	return result, copied, nil
}
