package tree

import "reflect"

// Record has the containers of a document with their content at the time of parsing, to find out whether the
// document has been changed. It is zero without a document.
type Record struct {
	objects []sized
	members []member
	lists   [][]any
	// items are the items of all lists, in their order.
	items []any
}

type sized struct {
	object map[string]any
	size   int
}

type member struct {
	object map[string]any
	key    string
	value  any
}

// NewRecord returns the record of a document.
func NewRecord(document any) *Record {
	record := &Record{}
	record.add(document)
	return record
}

func (r *Record) add(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			r.add(inner)
			r.members = append(r.members, member{value, key, inner})
		}
		r.objects = append(r.objects, sized{value, len(value)})
	case []any:
		for _, inner := range value {
			r.add(inner)
		}
		r.lists = append(r.lists, value)
		r.items = append(r.items, value...)
	}
}

// Unchanged reports whether all containers have the same content still. It compares values of other types than
// containers, and identities of containers. For a Pod of 6 KB it takes an eighth of the time of parsing.
func (r *Record) Unchanged() bool {
	for _, recorded := range r.objects {
		if len(recorded.object) != recorded.size {
			return false
		}
	}
	for index := range r.members {
		recorded := &r.members[index]
		if value, ok := recorded.object[recorded.key]; !ok || !identical(recorded.value, value) {
			return false
		}
	}
	first := 0
	for _, list := range r.lists {
		for index, item := range list {
			if !identical(r.items[first+index], item) {
				return false
			}
		}
		first += len(list)
	}
	return true
}

// identical reports whether two values are the same container, or equal values of another type.
func identical(left, right any) bool {
	switch left := left.(type) {
	case map[string]any:
		right, ok := right.(map[string]any)
		return ok && reflect.ValueOf(left).UnsafePointer() == reflect.ValueOf(right).UnsafePointer()
	case []any:
		right, ok := right.([]any)
		return ok && len(left) == len(right) && (len(left) == 0 || &left[0] == &right[0])
	}
	return left == right
}
