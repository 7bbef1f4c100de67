package tree

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const hex = "0123456789abcdef"

// Append appends a document to text: no spaces, keys sorted by code point, only required escapes. encoding/json
// always escapes U+2028 and U+2029, which would differ from the bytes of other languages.
func Append(text []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(text, "null"...)
	case bool:
		return strconv.AppendBool(text, value)
	case json.Number:
		return append(text, value...)
	case string:
		return appendString(text, value)
	case []any:
		text = append(text, '[')
		for index, item := range value {
			if index > 0 {
				text = append(text, ',')
			}
			text = Append(text, item)
		}
		return append(text, ']')
	case map[string]any:
		text = append(text, '{')
		for index, key := range slices.Sorted(maps.Keys(value)) {
			if index > 0 {
				text = append(text, ',')
			}
			text = append(appendString(text, key), ':')
			text = Append(text, value[key])
		}
		return append(text, '}')
	}
	panic(fmt.Sprintf("tree: %T is no part of a JSON document", value))
}

// appendString writes a string, in quotes.
func appendString(text []byte, value string) []byte {
	text = append(slices.Grow(text, len(value)+2), '"')
	copied := 0
	for at := 0; at < len(value); at++ {
		c := value[at]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		text = append(text, value[copied:at]...)
		copied = at + 1
		if short := strings.IndexByte("\"\\\b\f\n\r\t", c); short >= 0 {
			text = append(text, '\\', `"\bfnrt`[short])
		} else {
			text = append(text, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(text, value[copied:]...), '"')
}
