package prepared

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

const (
	// maxTextBytes is how long a text is that one function makes: an object has at most 3 MiB. OPA does not look at its context
	// while a function runs, and values that share their parts, such as [x, x] of [y, y], grow only when they are written.
	maxTextBytes = 16 << 20
	// maxElements is how many elements one function makes: some 100 MB.
	maxElements = 1 << 20
	// maxPadding is the largest width that Go pads to (go:fmt/print.go, tooLarge).
	maxPadding = 1e6
)

// Excess is the error of an evaluation in which one function would make too much.
type Excess struct{ function, limit string }

func (e *Excess) Error() string {
	return fmt.Sprintf("the evaluation was ended: %s would make more than %s", e.function, e.limit)
}

// message is the function with which the hook takes the message of a violation.
var message = &ast.Builtin{Name: "hook.message", Decl: ast.JSONMarshal.Decl}

// exceeds reports whether what a function makes of its operands would be too much. Operands of wrong types are left to it.
type exceeds func(operands []*ast.Term) bool

func init() {
	ast.RegisterBuiltin(message)
	topdown.RegisterBuiltinFunc(message.Name, func(_ topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
		return iter(operands[0])
	})
	const text, elements = "16 MiB of text", "1048576 elements"
	for _, each := range []struct {
		builtin *ast.Builtin
		limit   string
		exceeds exceeds
	}{
		{message, text, isLong},
		{ast.Concat, text, isLongJoined},
		{ast.Sprintf, text, isLongFormatted},
		{ast.InternalTemplateString, text, isLong},
		{ast.JSONMarshal, text, isLong},
		{ast.JSONMarshalWithOptions, text, isLong},
		{ast.YAMLMarshal, text, isLong},
		{ast.Split, elements, func(operands []*ast.Term) bool { return hasMany(operands[0], textOf(operands[1])) }},
		{ast.JSONUnmarshal, elements, func(operands []*ast.Term) bool { return hasMany(operands[0], ",") }},
		{ast.YAMLUnmarshal, elements, func(operands []*ast.Term) bool { return hasMany(operands[0], ",") || hasMany(operands[0], "\n") }},
		{ast.BitsShiftLeft, "1048576 bits", func(operands []*ast.Term) bool {
			number, isNumber := operands[1].Value.(ast.Number)
			by, isInt := number.Int64()
			return isNumber && (!isInt || by > maxElements)
		}},
	} {
		bound(each.builtin.Name, each.limit, each.exceeds)
	}
}

// bound has the function end the evaluation if it would make too much.
func bound(name, limit string, exceeds exceeds) {
	unbound := topdown.GetBuiltin(name)
	topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
		if exceeds(operands) {
			return topdown.Halt{Err: &Excess{name, limit}}
		}
		return unbound(ctx, operands, iter)
	})
}

func textOf(term *ast.Term) string {
	text, _ := term.Value.(ast.String)
	return string(text)
}

func hasMany(text *ast.Term, separator string) bool {
	return strings.Count(textOf(text), separator) > maxElements
}

func isLong(terms []*ast.Term) bool {
	left := maxTextBytes
	for _, term := range terms {
		left = spend(term, left)
	}
	return left < 0
}

// spend returns what is left of a number of bytes after the text of a term; less than 0: too little. It ends there.
func spend(term *ast.Term, left int) int {
	if left < 0 {
		return left
	}
	switch value := term.Value.(type) {
	case ast.String:
		return left - len(value) - 2
	case ast.Number:
		return left - len(value)
	case *ast.Array:
		value.Until(func(each *ast.Term) bool { left = spend(each, left-2); return left < 0 })
	case ast.Set:
		value.Until(func(each *ast.Term) bool { left = spend(each, left-2); return left < 0 })
	case ast.Object:
		value.Until(func(key, each *ast.Term) bool { left = spend(each, spend(key, left-4)); return left < 0 })
	}
	return left - 2
}

func isLongJoined(operands []*ast.Term) bool {
	between, left := len(textOf(operands[0])), maxTextBytes
	add := func(each *ast.Term) bool { left -= between + len(textOf(each)); return left < 0 }
	switch list := operands[1].Value.(type) {
	case *ast.Array:
		return list.Until(add)
	case ast.Set:
		return list.Until(add)
	}
	return false
}

// isLongFormatted takes the longest text that a format can make: one with [ may use a value several times.
func isLongFormatted(operands []*ast.Term) bool {
	format := textOf(operands[0])
	values, ok := operands[1].Value.(*ast.Array)
	if !ok {
		return false
	}
	verbs, left := strings.Count(format, "%"), maxTextBytes-len(format)
	if isPadded(format) {
		left -= verbs * maxPadding
	}
	times := 1
	if strings.Contains(format, "[") {
		times = max(1, verbs)
	}
	return values.Until(func(each *ast.Term) bool {
		left -= times * (maxTextBytes - spend(each, maxTextBytes))
		return left < 0
	}) || left < 0
}

// isPadded reports whether a format may have a width of a thousand or more.
func isPadded(format string) bool {
	digits := 0
	for _, each := range format {
		switch {
		case each == '*':
			return true
		case !unicode.IsDigit(each):
			digits = 0
		default:
			if digits++; digits > 3 {
				return true
			}
		}
	}
	return false
}
