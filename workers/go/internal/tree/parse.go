// Package tree reads, writes and compares JSON documents.
//
// A document is made of nil, bool, json.Number, string, []any and map[string]any. Numbers keep their
// text, because a float64 would lose digits.
//
// Three parts could come from libraries, which were measured with a Pod of 6 KB. Parse takes a quarter of the time of
// encoding/json, and records what it reads. Diff has bounds, because documents may be hostile: github.com/wI2L/jsondiff
// reads each value once for each level above it and makes any number of operations, and with a check of the size before it
// takes more than twice the time. Apply shares what it does not change: gopkg.in/evanphx/json-patch.v4, by which
// kube-apiserver applies patches, reads and writes text and takes eighty times as long, and its version 5 has other rules.
package tree

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/bits"
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

// Parse returns the document in text. A record gets the containers of the document, unless it is nil.
//
// The result is that of encoding/json, which needs about twice the CPU, and which reads what this parser does
// not: strings with escapes or invalid UTF-8, documents deeper than maxDepth, and documents with errors.
func Parse(text []byte, record *Record) (any, error) {
	if record != nil {
		record.members = make([]member, 0, min(len(text)/memberBytes, maxReserved))
	}
	p := parser{text: text, record: record}
	value, ok := p.value(0)
	if ok && p.next() == 0 && p.at == len(text) {
		return value, nil
	}
	value = nil
	err := Decode(text, &value)
	if record != nil {
		*record = Record{}
		record.add(value)
	}
	return value, err
}

const (
	// memberBytes is about the length of a member in a Pod. Memory that is reserved for them halves the cost of a record.
	memberBytes = 20
	maxReserved = 1024
)

// partBytes bounds the text that strings share, because a policy that keeps one of them keeps all of it.
const partBytes = 1024

type parser struct {
	text   []byte
	at     int
	record *Record
	// part is a copy of the text from the index partAt.
	part   string
	partAt int
}

// next returns the next character that is no space; zero at the end.
func (p *parser) next() byte {
	for ; p.at < len(p.text); p.at++ {
		if c := p.text[p.at]; c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
	}
	return 0
}

// value returns the value that begins here; false if encoding/json has to read the document.
func (p *parser) value(depth int) (any, bool) {
	if depth == maxDepth {
		return nil, false
	}
	switch p.next() {
	case '{':
		return p.object(depth + 1)
	case '[':
		return p.list(depth + 1)
	case '"':
		return p.string()
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	}
	return p.number()
}

func (p *parser) word(word string) bool {
	ok := bytes.HasPrefix(p.text[p.at:], []byte(word))
	p.at += len(word)
	return ok
}

// more steps over a comma, or over the end of a container, for which it returns false.
func (p *parser) more(end byte) (more, ok bool) {
	c := p.next()
	p.at++
	return c == ',', c == ',' || c == end
}

func (p *parser) object(depth int) (any, bool) {
	object := make(map[string]any)
	p.at++
	more, ok := true, true
	if p.next() == '}' {
		p.at++
		more = false
	}
	for more {
		if p.next() != '"' {
			return nil, false
		}
		key, ok := p.string()
		if !ok || p.next() != ':' {
			return nil, false
		}
		p.at++
		value, ok := p.value(depth)
		if !ok {
			return nil, false
		}
		object[key] = value
		if p.record != nil {
			p.record.members = append(p.record.members, member{object, key, value})
		}
		if more, ok = p.more('}'); !ok {
			return nil, false
		}
	}
	if p.record != nil {
		p.record.objects = append(p.record.objects, sized{object, len(object)})
	}
	return object, ok
}

func (p *parser) list(depth int) (any, bool) {
	list := []any{}
	p.at++
	more, ok := true, true
	if p.next() == ']' {
		p.at++
		more = false
	}
	for more {
		item, found := p.value(depth)
		if !found {
			return nil, false
		}
		list = append(list, item)
		if more, ok = p.more(']'); !ok {
			return nil, false
		}
	}
	// Without spare capacity, so that policies that append to the same list get lists of their own.
	list = list[:len(list):len(list)]
	if p.record != nil {
		p.record.lists = append(p.record.lists, list)
		p.record.items = append(p.record.items, list...)
	}
	return list, ok
}

const (
	ones = 0x0101010101010101
	high = 0x8080808080808080
)

// unquotedEnd returns the index of the first character from an index on that is a quote, a backslash, a control character or
// not ASCII; the length of the text if there is none.
func (p *parser) unquotedEnd(at int) int {
	// Eight characters at a time: has the high bit of the first byte that is a quote, a backslash, a control
	// character or not ASCII; later bytes may be wrong.
	for ; at+8 <= len(p.text); at += 8 {
		word := binary.LittleEndian.Uint64(p.text[at:])
		quote, backslash := word^'"'*ones, word^'\\'*ones
		has := ((quote-ones)&^quote | (backslash-ones)&^backslash | (word-' '*ones)&^word | word) & high
		if has != 0 {
			at += bits.TrailingZeros64(has) / 8
			break
		}
	}
	for at < len(p.text) && p.text[at] >= ' ' && p.text[at] != '"' && p.text[at] != '\\' && p.text[at] < 0x80 {
		at++
	}
	return at
}

// string returns the string that begins here, if it has neither escapes nor characters that are not ASCII, and
// otherwise lets encoding/json read it.
func (p *parser) string() (string, bool) {
	first := p.at + 1
	at := p.unquotedEnd(first)
	if at == len(p.text) {
		return "", false
	}
	if p.text[at] == '"' {
		p.at = at + 1
		return p.shared(first, at), true
	}
	for ; at < len(p.text) && p.text[at] != '"'; at++ {
		if p.text[at] == '\\' {
			at++
		}
	}
	if at >= len(p.text) {
		return "", false
	}
	var value string
	err := json.Unmarshal(p.text[first-1:at+1], &value)
	p.at = at + 1
	return value, err == nil
}

// shared returns the text from first to end, usually without copying it.
func (p *parser) shared(first, end int) string {
	if end > p.partAt+len(p.part) {
		p.partAt = first
		p.part = string(p.text[first:max(end, min(first+partBytes, len(p.text)))])
	}
	return p.part[first-p.partAt : end-p.partAt]
}

// number returns the number that begins here.
func (p *parser) number() (any, bool) {
	first := p.at
	if !p.digitsOfNumber() {
		return nil, false
	}
	return json.Number(p.shared(first, p.at)), true
}

// digitsOfNumber steps over the number that begins here.
func (p *parser) digitsOfNumber() bool {
	if p.is('-') {
		p.at++
	}
	if p.is('0') {
		p.at++
	} else if !p.digits() {
		return false
	}
	if p.is('.') {
		p.at++
		if !p.digits() {
			return false
		}
	}
	if p.is('e') || p.is('E') {
		p.at++
		if p.is('+') || p.is('-') {
			p.at++
		}
		return p.digits()
	}
	return true
}

func (p *parser) is(c byte) bool { return p.at < len(p.text) && p.text[p.at] == c }

func (p *parser) digits() bool {
	first := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at > first
}
