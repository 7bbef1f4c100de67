// Package tree reads, writes and compares JSON documents.
//
// A document is made of nil, bool, json.Number, string, []any and map[string]any. Numbers keep their
// text, because a float64 would lose digits.
package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Decode decodes exactly one JSON text into a pointer. Numbers in an any are json.Number.
func Decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("there is more after the end of the document")
	}
	return nil
}

// Parse returns the document in text.
func Parse(text []byte) (any, error) {
	var value any
	err := Decode(text, &value)
	return value, err
}
