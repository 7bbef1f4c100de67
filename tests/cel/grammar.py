"""Random expressions: mostly well-typed, over all libraries, with values from the review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

# ruff: noqa: E501 - a table
# No bare [] where the type of its elements matters: cel-go takes the one of the overload that it tries first.
# {kind} is replaced by a random expression of that kind, {x} by a variable in scope.
RULES: Final[dict[str, tuple[str, ...]]] = {
    "bool": (
        "true", "false", "({bool} && {bool})", "({bool} || {bool})", "!{bool}", "({bool} ? {bool} : {bool})",
        "({int} < {int})", "({int} >= {double})", "({string} < {string})", "({dyn} == {dyn})", "({dyn} != {int})",
        "({string} == {string})", "({int} == {int})", "({ints} == {ints})", "({strings} == {strings})",
        "({double} <= {double})", "({quantity} == {quantity})", "({dyn} < {int})", "({dyn} in {strings})",
        "({string} in {strings})", "({int} in {ints})", "({string} in {dyn})", "has({path}.name)", "has({path}.labels)",
        "{strings}.all(x, {boolx})", "{strings}.exists(x, {boolx})", "{strings}.exists_one(x, {boolx})",
        "{strings}.all(i, v, i < 2 || v == {string})", "{dyn}.all(x, {boolx})", "{dyn}.exists(k, v, k == {string})",
        "{string}.startsWith({string})", "{string}.contains({string})", "{string}.matches({regex})",
        "{string}.endsWith({dyn})", "{optional}.hasValue()", "{ints}.isSorted()", "{strings}.isSorted()",
        "sets.contains({strings}, {strings})", "sets.intersects({ints}, {ints})", "sets.equivalent({ints}, {ints})",
        "isQuantity({string})", "isIP({string})", "isCIDR({string})", "isURL({string})", "isSemver({string})",
        "isSemver({string}, true)", "{quantity}.isInteger()", "{quantity}.isLessThan({quantity})",
        "{ip}.isLoopback()", "({ip} == {ip})", "{cidr}.containsIP({ip})", "{cidr}.containsCIDR({cidr})",
        "{semver}.isLessThan({semver})", "{format}.validate({string}).hasValue()", "{dyn}.includes({dyn})",
        "({timestamp} < {timestamp})", "({duration} == {duration})", "(oldObject == null)", "(type({dyn}) == string)",
        "({bytes} == {bytes})", "(request.operation == {string})", "request.userInfo.groups.exists(x, {boolx})",
        "{dyn}", "authorizer.requestResource.check({string}).allowed()",
    ),
    "boolx": ("(x == {string})", "(size(x) > {int})", "(x != {dyn})", "{bool}", "has(x.name)", "(x.name == {string})"),
    "int": (
        "0", "1", "2", "3", "-1", "7", "100", "9223372036854775807", "({int} + {int})", "({int} - {int})",
        "({int} * {int})", "({int} / {int})", "({int} % {int})", "size({string})", "{strings}.size()",
        "int({double})", "int({string})", "{string}.indexOf({string})", "{string}.lastIndexOf({string}, {int})",
        "{ints}.sum()", "{ints}.max()", "{ints}.min()", "{ints}.indexOf({int})", "{ints}[{int}]",
        "{quantity}.asInteger()", "{quantity}.compareTo({quantity})", "sign({quantity})", "{semver}.minor()",
        "{cidr}.prefixLength()", "{ip}.family()", "{timestamp}.getDayOfYear()", "{duration}.getSeconds()",
        "{optional}.orValue({int})", "{semver}.compareTo({semver})",
    ),
    "double": (
        "0.5", "-2.5", "1e10", "3.0", "({double} + {double})", "({double} / {double})", "double({int})",
        "double({string})", "{quantity}.asApproximateFloat()", "[{double}, {double}].sum()",
    ),
    "string": (
        "''", "'a'", "'b'", "'abc'", "'héllo'", "'1'", "'10.0.0.1'", "'::1'", "'10.0.0.0/8'", "'1Gi'", "'500m'",
        "'1.2.3'", "'v1.2'", "'https://example.com:80/a%20b?c=d&e#f'", "'/a b'", "'get'", "'UPDATE'",
        "'2024-02-29T12:00:00Z'", "'2024-02-29'", "'my-name'", "' a '", "'é'", "request.operation", "request.name",
        "request.userInfo.username", "request.kind.kind", "request.namespace",
        "({string} + {string})", "string({int})", "string({double})", "string({duration})", "string({timestamp})",
        "string({ip})", "string({dyn})", "{string}.substring({int})", "{string}.substring({int}, {int})",
        "{string}.charAt({int})", "{string}.lowerAscii()", "{string}.upperAscii()", "{string}.trim()",
        "{string}.replace({string}, {string})", "{string}.replace({string}, {string}, {int})",
        "{string}.find({regex})", "{strings}.join({string})", "{strings}[{int}]", "{strings}.min()",
        "strings.quote({string})", "'%s'.format([{string}])", "'%s %d'.format([{dyn}, {int}])",
        "'%f|%e|%x'.format([{double}, {double}, {int}])", "'%s'.format([{double}])",
        "{url}.getHost()", "{url}.getPort()", "{url}.getHostname()", "{url}.getEscapedPath()", "{url}.getScheme()",
        "{dyn}.name",
    ),
    "ints": (
        "[0].filter(i, i > 0)", "[1]", "[3, 1, 2]", "[{int}, {int}]", "{ints}.map(i, i + 1)", "({ints} + {ints})", "{ints}.sort()",
        "{ints}.slice({int}, {int})", "{ints}.reverse()", "{ints}.distinct()", "lists.range({int})",
        "[{ints}, {ints}].flatten()", "{ints}.transformList(i, v, i + v)", "{ints}.sortBy(y, 0 - y)",
    ),
    "strings": (
        "['a', 'b']", "[{string}, {string}]", "{string}.split({string})", "{string}.split({string}, {int})",
        "{string}.findAll({regex})", "{string}.findAll({regex}, {int})", "{strings}.filter(x, {boolx})",
        "request.userInfo.groups", "{strings}.sort()", "{strings}.distinct()", "{strings}.reverse()",
        "{path}.map(x, x)", "{format}.validate({string}).orValue([])", "{strings}.map(x, x != 'a', x)",
    ),
    "regex": ("'a'", "'[a-z]+'", "'^.b?'", "'(a|b)*'", "'\\\\d+'", "'\\\\b'", "''", "{string}", "'('"),
    "optional": (
        "object.?spec", "object.?metadata.name", "object.metadata.?labels", "optional.of({int})", "optional.none()",
        "{ints}.first()", "{dyn}[?{string}]", "{optional}.or({optional})", "{path}.?name", "{optional}.optMap(o, o)",
        "{ints}[?{int}]", "optional.ofNonZeroValue({int})",
    ),
    "quantity": (
        "quantity({string})", "quantity('1')", "quantity('1000m')", "quantity('1.5Ki')", "quantity('-3e2')",
        "quantity('10E')", "quantity('0.1n')", "{quantity}.add({quantity})", "{quantity}.sub({int})",
    ),
    "ip": ("ip({string})", "ip('::1')", "ip('127.0.0.1')", "ip('10.1.2.3')", "{cidr}.ip()"),
    "cidr": ("cidr({string})", "cidr('10.1.2.3/8')", "cidr('::/0')", "{cidr}.masked()"),
    "semver": ("semver({string})", "semver({string}, true)", "semver('1.2.3-a.1')", "semver('1.10.0')"),
    "url": ("url({string})", "url('https://[::1]:8080/x')", "url('/a')"),
    "format": (
        "format.dns1123Label()", "format.labelValue()", "format.date()", "format.uri()", "format.qualifiedName()",
        "format.named({string}).value()", "format.datetime()", "format.byte()", "format.dns1123SubdomainPrefix()",
    ),
    "timestamp": (
        "timestamp({string})", "timestamp('2024-02-29T12:00:00Z')", "timestamp(0)", "({timestamp} + {duration})",
    ),
    "duration": ("duration('1h')", "duration('1500ms')", "({timestamp} - {timestamp})", "duration({string})"),
    "bytes": ("b'a'", "bytes({string})", "b'\\xff'"),
    "dyn": ("{path}", "{path}", "{path}", "dyn({int})", "dyn({string})", "{path}[{string}]", "{path}.missing", "null",
            "{path}[{int}]"),
}  # fmt: skip
_LEAVES: Final = {
    kind: [rule for rule in rules if "{" not in rule] or list(rules[:1]) for kind, rules in RULES.items()
}


def draw_expression(draw: random.Random, request: dict[str, Any], depth: int = 4) -> str:
    """Return an expression, most likely of the type bool, for *request*."""
    return _drawn(draw, request, "bool", depth)


def _drawn(draw: random.Random, request: dict[str, Any], kind: str, depth: int) -> str:
    if kind == "path":
        return _path(draw, request)
    if kind not in ("boolx", "regex") and draw.random() < 0.004:
        kind = draw.choice(sorted(RULES))
    rule = draw.choice(RULES[kind] if depth > 0 else _LEAVES[kind])
    parts = rule.split("{")
    text = parts[0]
    for part in parts[1:]:
        name, close, rest = part.partition("}")
        known = bool(close) and (name in RULES or name == "path")
        text += _drawn(draw, request, name, depth - 1) + rest if known else "{" + part
    return text


def _path(draw: random.Random, request: dict[str, Any]) -> str:
    text, value = draw.choice(
        [
            ("object", request.get("object")),
            ("object", request.get("object")),
            ("oldObject", request.get("oldObject")),
        ]
    )
    while draw.random() < 0.8:
        if isinstance(value, dict) and value:
            key = draw.choice(sorted(value))
            text, value = f"{text}.{key}" if key.isidentifier() else f"{text}[{key!r}]", value[key]
        elif isinstance(value, list) and value:
            at = draw.randrange(len(value))
            text, value = f"{text}[{at}]", value[at]
        else:
            break
    return text
