// Package tree reads, writes and compares JSON documents.
//
// A document is made of nil, bool, json.Number, string, []any and map[string]any. Numbers keep the text they
// were written with, so none is damaged by passing through a float64.
package tree

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deeply a document may be nested. Kubernetes' own go some twenty levels deep, and a stack
// that overflows would end the process.
const maxDepth = 1024

// Raw is the text of a value that is known to be well-formed and was not built.
type Raw string

// Parse returns the value.
func (r Raw) Parse() any {
	value, _ := (&parser{text: string(r)}).value(true)
	return value
}

// Parse returns the document in text. Its strings share the memory of text.
func Parse(text string) (any, error) {
	parser := &parser{text: text}
	if err := parser.start(); err != nil {
		return nil, err
	}
	value, err := parser.value(true)
	if err != nil {
		return nil, err
	}
	return value, parser.end()
}

// ParseMembers is Parse for an object of which only some members may be of interest: it asks build for each
// whether to build its value, and leaves the others as Raw. A member that is built is also handed to seen
// with its text. ok is false, and found a word for what there is instead, where the document is no object.
func ParseMembers(text string, build func(key string) bool, seen func(key, text string)) (
	members map[string]any, found string, err error,
) {
	parser := &parser{text: text}
	if err := parser.start(); err != nil {
		return nil, "", err
	}
	if parser.at == len(text) || text[parser.at] != '{' {
		value, err := parser.value(true)
		if err == nil {
			err = parser.end()
		}
		return nil, Word(value), err
	}
	members = make(map[string]any, 16)
	for first := true; ; first = false {
		key, more, err := parser.key(first)
		if err != nil {
			return nil, "", err
		}
		if !more {
			return members, "object", parser.end()
		}
		begin, whole := parser.at, build(key)
		value, err := parser.value(whole)
		if err != nil {
			return nil, "", err
		}
		if !whole {
			value = Raw(text[begin:parser.at])
		}
		seen(key, text[begin:parser.at])
		members[key] = value
	}
}

// Word says in a word what kind of value it is.
func Word(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return fmt.Sprintf("%T", value)
}

type parser struct {
	text  string
	at    int
	depth int
}

func (p *parser) start() error {
	if !utf8.ValidString(p.text) {
		return fmt.Errorf("the text is not UTF-8")
	}
	p.space()
	return nil
}

func (p *parser) end() error {
	p.space()
	if p.at < len(p.text) {
		return p.unexpected("the end")
	}
	return nil
}

func (p *parser) unexpected(wanted string) error {
	if p.at >= len(p.text) {
		return fmt.Errorf("the text ends at byte %d, expected %s", p.at, wanted)
	}
	found, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return fmt.Errorf("found %s at byte %d, expected %s", strconv.QuoteRune(found), p.at, wanted)
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\n', '\t', '\r':
			p.at++
		default:
			return
		}
	}
}

// value reads one value; it is built only if keep says so.
func (p *parser) value(keep bool) (any, error) {
	if p.at >= len(p.text) {
		return nil, p.unexpected("a value")
	}
	switch c := p.text[p.at]; c {
	case '{':
		return p.object(keep)
	case '[':
		return p.array(keep)
	case '"':
		text, err := p.string(keep)
		if err != nil || !keep {
			return nil, err
		}
		return text, nil
	case 't':
		return true, p.literal("true")
	case 'f':
		return false, p.literal("false")
	case 'n':
		return nil, p.literal("null")
	default:
		begin := p.at
		if err := p.number(); err != nil || !keep {
			return nil, err
		}
		return json.Number(p.text[begin:p.at]), nil
	}
}

func (p *parser) literal(word string) error {
	if !strings.HasPrefix(p.text[p.at:], word) {
		return p.unexpected("a value")
	}
	p.at += len(word)
	return nil
}

func (p *parser) object(keep bool) (any, error) {
	var found map[string]any
	if keep {
		found = make(map[string]any)
	}
	for first := true; ; first = false {
		key, more, err := p.key(first)
		if err != nil || !more {
			return found, err
		}
		value, err := p.value(keep)
		if err != nil {
			return nil, err
		}
		if keep {
			found[key] = value
		}
	}
}

func (p *parser) array(keep bool) (any, error) {
	items := []any{}
	for first := true; ; first = false {
		more, err := p.next(first, ']')
		if err != nil || !more {
			return items, err
		}
		item, err := p.value(keep)
		if err != nil {
			return nil, err
		}
		if keep {
			items = append(items, item)
		}
	}
}

// key goes on to the next member of an object and reads its key; more is false at the end of the object.
func (p *parser) key(first bool) (key string, more bool, err error) {
	more, err = p.next(first, '}')
	if err != nil || !more {
		return "", false, err
	}
	if p.at >= len(p.text) || p.text[p.at] != '"' {
		return "", false, p.unexpected("a key")
	}
	if key, err = p.string(true); err != nil {
		return "", false, err
	}
	p.space()
	if p.at >= len(p.text) || p.text[p.at] != ':' {
		return "", false, p.unexpected("':'")
	}
	p.at++
	p.space()
	return key, true, nil
}

// next goes on to the next part of an object or array, or past the end of it; more is false then.
func (p *parser) next(first bool, end byte) (more bool, err error) {
	if first {
		if p.depth++; p.depth > maxDepth {
			return false, errTooDeep
		}
		p.at++
	}
	p.space()
	switch {
	case p.at < len(p.text) && p.text[p.at] == end:
		p.at++
		p.depth--
		return false, nil
	case first:
		return true, nil
	case p.at < len(p.text) && p.text[p.at] == ',':
		p.at++
		p.space()
		return true, nil
	}
	return false, p.unexpected("',' or '" + string(rune(end)) + "'")
}

func (p *parser) number() error {
	if p.at < len(p.text) && p.text[p.at] == '-' {
		p.at++
	}
	if p.at < len(p.text) && p.text[p.at] == '0' {
		p.at++
	} else if !p.digits() {
		return p.unexpected("a value")
	}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		if !p.digits() {
			return p.unexpected("a digit")
		}
	}
	if p.at < len(p.text) && (p.text[p.at] == 'e' || p.text[p.at] == 'E') {
		p.at++
		if p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		if !p.digits() {
			return p.unexpected("a digit")
		}
	}
	return nil
}

func (p *parser) digits() bool {
	begin := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at > begin
}
