package tree

import (
	"encoding/json"
	"iter"
)

// deepest is the depth to which encoding/json reads a document.
const deepest = 10_000

// Index has the places of the values in a JSON text, which is not to be changed. Several goroutines may read it.
type Index struct {
	text  []byte
	nodes []node
}

// node is a value, or the key of a member, which the node of its value follows.
type node struct {
	// The value is text[first:end].
	first, end uint32
	// next is the index of the node after this one and those in it.
	next uint32
	kind kind
}

type kind uint8

const (
	nullKind kind = iota
	falseKind
	trueKind
	numberKind
	// plainKind is a string without escapes, of ASCII characters.
	plainKind
	textKind
	listKind
	objectKind
)

const (
	// nodeBytes is about the length of the text for each node in a Pod.
	nodeBytes = 8
	// maxReservedNodes bounds the memory that is reserved.
	maxReservedNodes = 4096
)

// NewIndex returns the index of a text; nil if encoding/json would return an error.
func NewIndex(text []byte) *Index {
	i := indexer{parser{text: text}, make([]node, 0, min(len(text)/nodeBytes+1, maxReservedNodes))}
	if !i.value(0) || i.next() != 0 || i.at != len(text) {
		return nil
	}
	return &Index{text, i.nodes}
}

// Root returns the document.
func (x *Index) Root() Value { return Value{x, 0} }

type indexer struct {
	parser
	nodes []node
}

// value adds the value that begins here, at a depth; false if there is none.
func (i *indexer) value(depth int) (ok bool) {
	found := nullKind
	c := i.next()
	at, first := len(i.nodes), i.at
	i.nodes = append(i.nodes, node{})
	switch c {
	case '{':
		found, ok = objectKind, i.container(depth, '}')
	case '[':
		found, ok = listKind, i.container(depth, ']')
	case '"':
		found, ok = i.quoted()
	case 't':
		found, ok = trueKind, i.word("true")
	case 'f':
		found, ok = falseKind, i.word("false")
	case 'n':
		ok = i.word("null")
	default:
		found, ok = numberKind, i.digitsOfNumber()
	}
	i.nodes[at] = node{uint32(first), uint32(i.at), uint32(len(i.nodes)), found}
	return ok
}

// container adds the items or members of the container that begins here.
func (i *indexer) container(depth int, end byte) bool {
	if depth == deepest {
		return false
	}
	i.at++
	if i.next() == end {
		i.at++
		return true
	}
	for more, ok := true, true; more; {
		if end == '}' && !i.key() {
			return false
		}
		if !i.value(depth + 1) {
			return false
		}
		if more, ok = i.more(end); !ok {
			return false
		}
	}
	return true
}

// key adds the key that begins here.
func (i *indexer) key() bool {
	if i.next() != '"' {
		return false
	}
	first := i.at
	found, ok := i.quoted()
	i.nodes = append(i.nodes, node{uint32(first), uint32(i.at), uint32(len(i.nodes) + 1), found})
	if !ok || i.next() != ':' {
		return false
	}
	i.at++
	return true
}

// quoted steps over the string that begins here.
func (i *indexer) quoted() (found kind, ok bool) {
	found = plainKind
	for i.at = i.unquotedEnd(i.at + 1); i.at < len(i.text); i.at = i.unquotedEnd(i.at) {
		switch c := i.text[i.at]; {
		case c == '"':
			i.at++
			return found, true
		case c < ' ' || c == '\\' && !i.escape():
			return found, false
		}
		found = textKind
		i.at++
	}
	return found, false
}

// escape steps to the last character of the escape that begins here.
func (i *indexer) escape() bool {
	i.at++
	if i.at == len(i.text) {
		return false
	}
	switch i.text[i.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			i.at++
			if i.at == len(i.text) || !isHex(i.text[i.at]) {
				return false
			}
		}
		return true
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// Value is a value of a JSON document, to be read only. The zero Value is one that does not exist. Of members with the same
// key, the last one counts.
type Value struct {
	index *Index
	at    uint32
}

// Get returns the value at a path of keys.
func (v Value) Get(path ...string) Value {
	for _, key := range path {
		v = v.member(key)
	}
	return v
}

func (v Value) member(key string) (found Value) {
	for at := range v.within(objectKind, 2) {
		if named := v.index.nodes[at]; named.kind == textKind && v.index.string(named) == key ||
			named.kind == plainKind && string(v.index.text[named.first+1:named.end-1]) == key {
			found = Value{v.index, at + 1}
		}
	}
	return found
}

// within yields the first nodes of the items of a list, or of the members of an object, which have two nodes.
func (v Value) within(wanted kind, size uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if v.kind() != wanted {
			return
		}
		nodes := v.index.nodes
		for at, end := v.at+1, nodes[v.at].next; at < end && yield(at); at = nodes[at+size-1].next {
		}
	}
}

func (v Value) kind() kind {
	if v.index == nil {
		return nullKind
	}
	return v.index.nodes[v.at].kind
}

// Exists reports whether there is a value, and it is not null.
func (v Value) Exists() bool { return v.kind() != nullKind }

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return v.kind() == objectKind }

// Text returns a string; empty if the value is something else.
func (v Value) Text() string {
	if kind := v.kind(); kind != plainKind && kind != textKind {
		return ""
	}
	return v.index.string(v.index.nodes[v.at])
}

// Bool reports whether the value is true.
func (v Value) Bool() bool { return v.kind() == trueKind }

// Number returns a number; empty if the value is something else.
func (v Value) Number() json.Number {
	if v.kind() != numberKind {
		return ""
	}
	found := v.index.nodes[v.at]
	return json.Number(v.index.text[found.first:found.end])
}

// Items returns the items of a list; none if the value is something else.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for at := range v.within(listKind, 1) {
			if !yield(Value{v.index, at}) {
				return
			}
		}
	}
}

// Members returns the members of an object by their keys; none if the value is something else.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		last := make(map[string]uint32)
		for at := range v.within(objectKind, 2) {
			last[v.index.string(v.index.nodes[at])] = at
		}
		for at := range v.within(objectKind, 2) {
			if key := v.index.string(v.index.nodes[at]); last[key] == at && !yield(key, Value{v.index, at + 1}) {
				return
			}
		}
	}
}

// Any returns the value as maps, lists, strings, json.Number and bools that belong to the caller; nil if it does not exist.
func (v Value) Any() any {
	if !v.Exists() {
		return nil
	}
	found := v.index.nodes[v.at]
	value, _ := Parse(v.index.text[found.first:found.end], nil) // the index has checked it
	return value
}

func (x *Index) string(of node) (text string) {
	if of.kind == plainKind {
		return string(x.text[of.first+1 : of.end-1])
	}
	_ = json.Unmarshal(x.text[of.first:of.end], &text) // the index has checked it
	return text
}
