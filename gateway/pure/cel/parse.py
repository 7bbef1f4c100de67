"""Text → the syntax tree of an expression, with macros as nodes.

Source: cel-go parser/parser.go, parser/gen/CEL.g4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.lexer import CompileError, Token, tokens, unquote
from gateway.pure.cel.macros import expand
from gateway.pure.cel.syntax import Call, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral
from gateway.pure.cel.values import Uint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.cel.functions import Macro

LENGTH: Final = 100_000
"""Characters of an expression, as in cel-go."""
DEPTH: Final = 120
"""Levels of nesting, such as brackets. cel-go allows 250 levels, of which a bracket takes one to three."""
CHAIN: Final = 250
"""Operators in a row, as in ``1 + 1 + 1``."""

RESERVED: Final = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
    }
    | {"package", "namespace", "null", "return", "true", "var", "void", "while"}
)
# The precedence of the binary operators, and cel-go's names of them.
_OR, _AND, _RELATION, _SUM, _PRODUCT = 1, 2, 3, 4, 5
_BINARY: Final = {
    "||": (_OR, "_||_"),
    "&&": (_AND, "_&&_"),
    **{symbol: (_RELATION, f"_{symbol}_") for symbol in ("<", "<=", ">", ">=", "==", "!=")},
    "in": (_RELATION, "@in"),
    **{symbol: (_SUM, f"_{symbol}_") for symbol in "+-"},
    **{symbol: (_PRODUCT, f"_{symbol}_") for symbol in "*/%"},
}
_INT_MAX: Final = (1 << 63) - 1


_NO_MACROS: Final[Mapping[str, Macro]] = {}


def parse(text: str, macros: Mapping[str, Macro] = _NO_MACROS) -> Node:
    """Return the tree of *text*, with *macros* beside those of Kubernetes.

    Raises:
        CompileError: it is not an expression, or too long or too deep.
    """
    if len(text) > LENGTH:
        raise CompileError(f"the expression has {len(text)} characters, at most {LENGTH} are allowed", 0)
    return _Parser(tokens(text), macros).parse()


class _Parser:
    """A recursive descent parser that looks one token ahead."""

    def __init__(self, found: list[Token], macros: Mapping[str, Macro]) -> None:
        self._tokens = found
        self._macros = macros
        self._next = 0
        self._depth = 0

    def parse(self) -> Node:
        tree = self._expression()
        if self._peek.kind != "end":
            raise self._unexpected()
        return tree

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self, text: str) -> Token | None:
        token = self._tokens[self._next]
        if token.text == text and token.kind in ("symbol", "name"):
            self._next += 1
            return token
        return None

    def _expect(self, text: str) -> Token:
        token = self._take(text)
        if token is None:
            raise self._unexpected(text)
        return token

    def _unexpected(self, wanted: str = "") -> CompileError:
        token = self._peek
        found = f"'{token.text}'" if token.text else "end of the expression"
        return CompileError(
            f"syntax error: unexpected {found}" + (f", expected '{wanted}'" if wanted else ""), token.at
        )

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > DEPTH:
            raise CompileError(f"expression is nested too deep: at most {DEPTH} levels are allowed", at)

    def _expression(self) -> Node:
        """Parse ``a ? b : c`` and everything of higher precedence."""
        at = self._peek.at
        self._deeper(at)
        tree = self._operators()
        if question := self._take("?"):
            first = self._operators()
            self._expect(":")
            tree = Call(question.at, "_?_:_", None, [tree, first, self._expression()])
        self._depth -= 1
        return tree

    def _operators(self) -> Node:
        """Parse binary operators by their precedence, without recursion."""
        operands = [self._unary()]
        pending: list[tuple[int, str, int]] = []
        heights = [0]

        def reduce() -> None:
            binding, name, at = pending.pop()
            right, left = operands.pop(), operands[-1]
            height = heights.pop()
            if binding <= _AND and isinstance(left, Call) and left.function == name:
                left.arguments.append(right)
                heights[-1] = max(heights[-1], height)
                return
            operands[-1] = Call(at, name, None, [left, right])
            heights[-1] = max(heights[-1], height) + 1
            if heights[-1] > CHAIN:
                raise CompileError(f"more than {CHAIN} operators in a row", at)

        while (token := self._peek).kind in ("symbol", "name") and token.text in _BINARY:
            binding, name = _BINARY[token.text]
            self._next += 1
            while pending and pending[-1][0] >= binding:
                reduce()
            pending.append((binding, name, token.at))
            operands.append(self._unary())
            heights.append(0)
        while pending:
            reduce()
        return operands[0]

    def _unary(self) -> Node:
        token = self._peek
        if token.text not in ("!", "-") or token.kind != "symbol":
            return self._member(self._primary())
        following = self._tokens[self._next + 1]
        if token.text == "-" and following.kind in ("int", "float"):
            self._next += 1
            return self._member(self._number("-"))
        count = 0
        while self._take(token.text):
            count += 1
        operand = self._member(self._primary())
        return Call(token.at, f"{token.text}_", None, [operand]) if count % 2 else operand

    def _member(self, tree: Node) -> Node:
        """Parse what follows an operand: ``.field``, ``.call()``, ``[index]``."""
        levels = 0
        while self._peek.kind == "symbol" and self._peek.text in (".", "["):
            levels += 1
            self._deeper(self._peek.at)
            if opening := self._take("["):
                name = "_[?_]" if self._take("?") else "_[_]"
                tree = Call(opening.at, name, None, [tree, self._expression()])
                self._expect("]")
                continue
            dot = self._expect(".")
            is_optional = self._take("?") is not None
            token = self._peek
            if token.kind not in ("name", "escaped") or token.text in ("in", "true", "false", "null"):
                raise self._unexpected()
            self._next += 1
            if token.kind == "name" and not is_optional and (opening := self._take("(")):
                tree = expand(Call(opening.at, token.text, tree, self._arguments()), self._macros)
            else:
                tree = Select(dot.at, tree, token.text.strip("`"), is_optional)
        self._depth -= levels
        return tree

    def _arguments(self) -> list[Node]:
        """Parse the arguments of a call after its opening parenthesis."""
        arguments: list[Node] = []
        if self._take(")"):
            return arguments
        arguments.append(self._expression())
        while self._take(","):
            arguments.append(self._expression())
        self._expect(")")
        return arguments

    def _primary(self) -> Node:
        token = self._peek
        if token.kind in ("int", "float", "uint"):
            return self._number("")
        self._next += 1
        if token.kind in ("string", "bytes"):
            return self._text(token)
        if token.kind == "name" and token.text in ("true", "false", "null"):
            return Literal(token.at, {"true": True, "false": False, "null": None}[token.text])
        if token.text == "(" and token.kind == "symbol":
            tree = self._expression()
            self._expect(")")
            return tree
        if token.text == "[" and token.kind == "symbol":
            return self._list(token.at)
        if token.text == "{" and token.kind == "symbol":
            return self._map(token.at)
        dot = ""
        if token.text == "." and self._peek.kind == "name":
            # A global name, even if a macro has a variable of that name. Names of macros have no dot.
            dot, token = ".", self._peek
            self._next += 1
        if token.kind == "name" and (name := self._struct_name()):
            return StructLiteral(token.at, name, self._fields())
        if token.kind != "name" or token.text == "in":
            self._next -= 1
            raise self._unexpected()
        if token.text in RESERVED:
            raise CompileError(f"reserved identifier: {token.text}", token.at)
        if opening := self._take("("):
            call = Call(opening.at, dot + token.text, None, self._arguments())
            return call if dot else expand(call, self._macros)
        return Ident(token.at, dot + token.text)

    def _number(self, sign: str) -> Node:
        token = self._peek
        self._next += 1
        if token.kind == "float":
            number = float(sign + token.text)
            if math.isinf(number):
                raise CompileError("invalid double literal", token.at)
            return Literal(token.at, number)
        digits = token.text.rstrip("uU")
        if len(digits) > 40:
            raise CompileError(f"invalid {token.kind} literal", token.at)
        value = int(sign + digits, 16 if digits.startswith("0x") else 10)
        if token.kind == "uint":
            if value >= 1 << 64:
                raise CompileError("invalid uint literal", token.at)
            return Literal(token.at, Uint(value))
        if not -_INT_MAX - 1 <= value <= _INT_MAX:
            raise CompileError("invalid int literal", token.at)
        return Literal(token.at, value)

    def _text(self, token: Token) -> Node:
        try:
            if token.kind == "bytes":
                return Literal(token.at, unquote(token.text[1:], is_bytes=True).encode("latin-1"))
            return Literal(token.at, unquote(token.text, is_bytes=False))
        except ValueError as problem:
            raise CompileError(str(problem), token.at) from None

    def _struct_name(self) -> str:
        """Return the type before an opening brace, after its first part was taken, or "" without a brace."""
        end = self._next
        while self._tokens[end].text == "." and self._tokens[end + 1].kind == "name":
            end += 2
        if self._tokens[end].text != "{" or self._tokens[end].kind != "symbol":
            return ""
        name = "".join(token.text for token in self._tokens[self._next - 1 : end])
        self._next = end + 1
        return name

    def _fields(self) -> list[tuple[str, Node, bool]]:
        """Parse the fields of a struct after its opening brace."""
        fields: list[tuple[str, Node, bool]] = []
        while not self._take("}"):
            is_optional = self._take("?") is not None
            token = self._peek
            if token.kind not in ("name", "escaped") or token.text in ("in", "true", "false", "null"):
                raise self._unexpected()
            self._next += 1
            self._expect(":")
            fields.append((token.text.strip("`"), self._expression(), is_optional))
            if not self._take(","):
                self._expect("}")
                break
        return fields

    def _list(self, at: int) -> Node:
        elements: list[Node] = []
        optional = set()
        while not self._take("]"):
            if self._take("?"):
                optional.add(len(elements))
            elements.append(self._expression())
            if not self._take(","):
                self._expect("]")
                break
        return ListLiteral(at, elements, frozenset(optional))

    def _map(self, at: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._take("}"):
            is_optional = self._take("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), is_optional))
            if not self._take(","):
                self._expect("}")
                break
        return MapLiteral(at, entries)
