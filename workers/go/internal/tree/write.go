package tree

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Append appends the JSON of a document to text, without spaces.
func Append(text []byte, value any) []byte {
	written := bytes.NewBuffer(text)
	encoder := json.NewEncoder(written)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("tree: %T is no JSON document: %v", value, err))
	}
	return bytes.TrimSuffix(written.Bytes(), []byte("\n"))
}
