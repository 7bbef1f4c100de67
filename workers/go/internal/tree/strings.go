package tree

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string. It shares the memory of the text unless there is an escape in it.
func (p *parser) string(keep bool) (string, error) {
	begin := p.at + 1
	text := p.text
	for at := begin; at < len(text); at++ {
		switch c := text[at]; {
		case c == '"':
			p.at = at + 1
			return text[begin:at], nil
		case c == '\\':
			p.at = at
			return p.escaped(begin, keep)
		case c < ' ':
			p.at = at
			return "", p.unexpected("no control character in a string")
		}
	}
	p.at = len(text)
	return "", p.unexpected("'\"'")
}

// escaped reads on in a string in which the parser is at the first backslash.
func (p *parser) escaped(begin int, keep bool) (string, error) {
	written := make([]byte, 0, 2*(p.at-begin)+16)
	for copied := begin; p.at < len(p.text); {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			if !keep {
				return "", nil
			}
			return string(append(written, p.text[copied:p.at-1]...)), nil
		case c < ' ':
			return "", p.unexpected("no control character in a string")
		case c != '\\':
			p.at++
			continue
		}
		written = append(written, p.text[copied:p.at]...)
		found, err := p.escape()
		if err != nil {
			return "", err
		}
		written = utf8.AppendRune(written, found)
		copied = p.at
	}
	return "", p.unexpected("'\"'")
}

// escape reads what begins with a backslash.
func (p *parser) escape() (rune, error) {
	if p.at++; p.at >= len(p.text) {
		return 0, p.unexpected("an escape")
	}
	c := p.text[p.at]
	p.at++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		p.at -= 2
		return p.codePoint()
	}
	p.at--
	return 0, p.unexpected("an escape")
}

// codePoint reads \uXXXX, or two of them that make one code point.
func (p *parser) codePoint() (rune, error) {
	begin := p.at
	first, ok := p.unit()
	if ok && !utf16.IsSurrogate(first) {
		return first, nil
	}
	if second, paired := p.unit(); ok && paired {
		if both := utf16.DecodeRune(first, second); both != utf8.RuneError {
			return both, nil
		}
	}
	return 0, fmt.Errorf("the escape at byte %d is no code point", begin)
}

func (p *parser) unit() (rune, bool) {
	if len(p.text) < p.at+6 || p.text[p.at] != '\\' || p.text[p.at+1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(p.text[p.at+2:p.at+6], 16, 16)
	p.at += 6
	return rune(unit), err == nil
}
