package tree

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxCopyBytes bounds what copy operations add to a document, as in kube-apiserver.
	maxCopyBytes = 3 * 1024 * 1024
	// maxLevels bounds the parts of a path.
	maxLevels = 1024
)

var (
	errAbsent = errors.New("the path leads to a missing value")
	errWork   = errors.New("the patch needs too much work")
	isIndex   = regexp.MustCompile(`^[+-]?[0-9]{1,19}$`)
)

// Apply returns the document with a JSON Patch applied, as the gateway and kube-apiserver apply it: replace of an
// absent member adds it, add without a value adds null, indices may be negative. The document is not changed, and
// shares the containers that are not changed with the result. The result has values of the patch.
func Apply(document, patch any) (any, error) {
	operations, ok := patch.([]any)
	if !ok && patch != nil || len(operations) > maxOperations {
		return nil, fmt.Errorf("the patch is no array of at most %d operations", maxOperations)
	}
	a := &applying{document: document, copied: make(map[any]bool)}
	for index, item := range operations {
		operation, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("operation %d is not a JSON object", index)
		}
		if err := a.apply(operation); err != nil {
			return nil, fmt.Errorf("operation %d: %w", index, err)
		}
	}
	return a.document, nil
}

type applying struct {
	document any
	// copied has the addresses of containers that no other document shares.
	copied map[any]bool
	// The work so far, which is bounded.
	parts, shifted, copyBytes int
}

func (a *applying) apply(operation map[string]any) error {
	path, ok := operation["path"].(string)
	if !ok {
		return errors.New("there is no path")
	}
	from, hasFrom := operation["from"].(string)
	value := operation["value"]
	switch operation["op"] {
	case "add":
		return a.add(path, value)
	case "remove":
		_, err := a.remove(path)
		return err
	case "replace":
		return a.replace(path, value)
	case "move", "copy":
		if !hasFrom {
			return errors.New("there is no from")
		}
		take := a.remove
		if operation["op"] == "copy" {
			take = a.copy
		}
		value, err := take(from)
		if err != nil {
			return err
		}
		return a.add(path, value)
	case "test":
		found, err := a.get(path)
		if err == nil && !Same(found, value) {
			err = errors.New("the tested value differs")
		}
		return err
	}
	return errors.New("the operation is unknown")
}

// tokens returns the parts of a path. The text before the first slash is ignored.
func (a *applying) tokens(path string) ([]string, error) {
	count := strings.Count(path, "/")
	a.parts += count
	if count == 0 {
		return nil, errors.New("the path does not point into the object")
	}
	if count > maxLevels || a.parts > maxPathParts {
		return nil, errWork
	}
	tokens := strings.Split(path, "/")[1:]
	for index, token := range tokens {
		tokens[index] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

func (a *applying) shift(items int) error {
	a.shifted += items
	if a.shifted > maxShifted {
		return errWork
	}
	return nil
}

// change replaces the container of the path's target by what the function returns for it. The function may change
// the container, which no other document shares.
func (a *applying) change(path string, function func(container any, token string) (any, error)) error {
	tokens, err := a.tokens(path)
	if err == nil {
		a.document, err = a.changeIn(a.document, tokens, function)
	}
	return err
}

func (a *applying) changeIn(
	node any, tokens []string, function func(container any, token string) (any, error),
) (any, error) {
	node, token := a.own(node), tokens[0]
	if len(tokens) == 1 {
		changed, err := function(node, token)
		a.mark(changed)
		return changed, err
	}
	inner, err := get(node, token)
	if err == nil {
		inner, err = a.changeIn(inner, tokens[1:], function)
	}
	if err != nil {
		return nil, err
	}
	switch node := node.(type) {
	case map[string]any:
		node[token] = inner
	case []any:
		at, _ := position(token, len(node))
		node[at] = inner
	}
	return node, nil
}

// own returns a container that no other document shares: this one or a copy.
func (a *applying) own(node any) any {
	if a.copied[address(node)] {
		return node
	}
	switch container := node.(type) {
	case map[string]any:
		node = maps.Clone(container)
	case []any:
		node = slices.Clone(container)
	}
	a.mark(node)
	return node
}

func (a *applying) mark(container any) {
	if place := address(container); place != nil {
		a.copied[place] = true
	}
}

// address returns the identity of a container; nil for other values and empty lists.
func address(container any) any {
	switch container := container.(type) {
	case map[string]any:
		return reflect.ValueOf(container).UnsafePointer()
	case []any:
		if len(container) > 0 {
			return &container[0]
		}
	}
	return nil
}

func (a *applying) add(path string, value any) error {
	return a.change(path, func(container any, token string) (any, error) {
		switch container := container.(type) {
		case map[string]any:
			container[token] = value
			return container, nil
		case []any:
			if token == "-" {
				return append(container, value), nil
			}
			at, err := position(token, len(container)+1)
			if err == nil {
				err = a.shift(len(container) - at)
			}
			if err != nil {
				return nil, err
			}
			return slices.Insert(container, at, value), nil
		}
		return nil, errAbsent
	})
}

func (a *applying) replace(path string, value any) error {
	if path == "" {
		if !isContainer(value) {
			return errors.New("the document can be replaced by an object or an array only")
		}
		a.document = value
		return nil
	}
	return a.change(path, func(container any, token string) (any, error) {
		switch container := container.(type) {
		case map[string]any:
			container[token] = value
			return container, nil
		case []any:
			at, err := position(token, len(container))
			if err == nil {
				container[at] = value
			}
			return container, err
		}
		return nil, errAbsent
	})
}

func (a *applying) remove(path string) (removed any, err error) {
	err = a.change(path, func(container any, token string) (any, error) {
		switch container := container.(type) {
		case map[string]any:
			value, ok := container[token]
			if !ok {
				return nil, errAbsent
			}
			removed = value
			delete(container, token)
			return container, nil
		case []any:
			at, err := position(token, len(container))
			if err == nil {
				err = a.shift(len(container) - at - 1)
			}
			if err != nil {
				return nil, err
			}
			removed = container[at]
			return slices.Delete(container, at, at+1), nil
		}
		return nil, errAbsent
	})
	return removed, err
}

// get returns the value at the path; nil for an absent member of an object.
func (a *applying) get(path string) (any, error) {
	if path == "" {
		return a.document, nil
	}
	tokens, err := a.tokens(path)
	node := a.document
	for _, token := range tokens {
		if err == nil {
			node, err = get(node, token)
		}
	}
	return node, err
}

func (a *applying) copy(path string) (any, error) {
	if path == "" {
		return nil, errors.New("the path does not point into the object")
	}
	value, err := a.get(path)
	if err != nil {
		return nil, err
	}
	text := Append(nil, value)
	if a.copyBytes += len(text); a.copyBytes > maxCopyBytes {
		return nil, errWork
	}
	return Parse(text, nil)
}

func get(node any, token string) (any, error) {
	switch node := node.(type) {
	case map[string]any:
		return node[token], nil
	case []any:
		at, err := position(token, len(node))
		if err != nil {
			return nil, err
		}
		return node[at], nil
	}
	return nil, errAbsent
}

// position returns the token as an index below the length; negative ones count from the length.
func position(token string, length int) (int, error) {
	if !isIndex.MatchString(token) {
		return 0, fmt.Errorf("%.100q is not an array index", token)
	}
	at, err := strconv.Atoi(token)
	if at < 0 {
		at += length
	}
	if err != nil || at < 0 || at >= length {
		return 0, fmt.Errorf("index %.100q is out of range", token)
	}
	return at, nil
}
