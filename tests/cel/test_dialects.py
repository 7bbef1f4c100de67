"""What the policies of other engines have beside or instead of Kubernetes' environment."""

from __future__ import annotations

import gzip
import json
import re
from fractions import Fraction
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.admission_policies.evaluation import (
    POLICY_LIMIT,
    Allowance,
    AllTrue,
    evaluate_all,
)
from gateway.pure.cel import meter
from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.dialects import CLUSTER_POLICY, GATEKEEPER, KUBERNETES, KYVERNO, Dialect
from gateway.pure.cel.environment import GLOBALS, SLOTS, policy_environment
from gateway.pure.cel.errors import EvaluationError, InvalidExpression
from gateway.pure.cel.libraries.images import parse_image
from gateway.pure.cel.types import BOOL, DYN
from gateway.pure.cel.values import Duration, Timestamp

VALUES: Final[list[object]] = [None] * (len(GLOBALS) - 1)
ALL: Final = (KUBERNETES, KYVERNO, CLUSTER_POLICY, GATEKEEPER)


def evaluated(text: str, dialect: Dialect, **values: object) -> object:
    """Return the value of *text*, with values of global variables."""
    frame = list(VALUES)
    for name, value in values.items():
        frame[SLOTS[name]] = value
    environment = policy_environment(None, has_params=False, dialect=dialect)
    program = compile_expression(text, environment)
    meter.begin()
    return program.evaluate([*frame, None, *[None] * program.program.slots], 1_000_000)


def problem_of(text: str, dialect: Dialect) -> str:
    """Return why *text* does not compile."""
    with pytest.raises(InvalidExpression) as problem:
        compile_expression(text, policy_environment(None, has_params=False, dialect=dialect))
    return str(problem.value)


@pytest.mark.parametrize("dialect", [KYVERNO, CLUSTER_POLICY], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("object.?a.orValue(2)", 1),
        ("object.?b.orValue(2)", 2),
        ("object.a.orValue(2)", 1),
        ("object.n.orValue(2)", None),
        ("optional.none().orValue('x')", "x"),
        ("[1, 2].orValue([])", [1, 2]),
        ("object.?b.?c.orValue([]).all(x, x == 1)", True),
    ],
)
def test_or_value_takes_what_is_not_optional(dialect: Dialect, text: str, expected: object) -> None:
    assert evaluated(text, dialect, object={"a": 1, "n": None}) == expected


def test_or_value_does_not_replace_a_missing_field() -> None:
    with pytest.raises(EvaluationError, match="no such key: b"):
        evaluated("object.b.orValue(2)", KYVERNO, object={})


def test_the_type_of_or_value_is_not_known() -> None:
    """So an expression that has to be of the type bool is refused."""
    environment = policy_environment(None, has_params=False, dialect=KYVERNO)
    assert compile_expression("object.?a.orValue(true)", environment).type == DYN
    with pytest.raises(InvalidExpression, match="must evaluate to bool but got dyn"):
        compile_expression("object.?a.orValue(true)", environment, (BOOL,))


def test_without_a_dialect_or_value_is_that_of_kubernetes() -> None:
    with pytest.raises(EvaluationError, match="no such overload"):
        evaluated("object.a.orValue(2)", KUBERNETES, object={"a": 1})


def test_variables_differ() -> None:
    assert problem_of("authorizer != null", KYVERNO).endswith(
        "undeclared reference to 'authorizer' (in container '')"
    )
    assert problem_of("authorizer != null", GATEKEEPER).endswith("'authorizer' (in container '')")
    assert problem_of("params == null", KYVERNO).endswith("'params' (in container '')")
    assert problem_of("exceptions.allowedImages == []", KUBERNETES).endswith("'exceptions' (in container '')")
    assert problem_of("request.object == null", KUBERNETES).endswith("undefined field 'object'")
    assert problem_of("exceptions.other == null", KYVERNO).endswith("undefined field 'other'")
    given: dict[str, Any] = {
        "exceptions": {"allowedImages": ["a"], "allowedValues": []},
        "request": {"object": {"x": 1}, "oldObject": None},
    }
    assert evaluated("'a' in exceptions.allowedImages", KYVERNO, **given) is True
    assert evaluated("exceptions.allowedValues.size()", KYVERNO, **given) == 0
    assert evaluated("request.object.x == 1 && request.oldObject == null", KYVERNO, **given) is True


@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.name)
def test_every_dialect_has_what_kubernetes_has(dialect: Dialect) -> None:
    assert (
        evaluated("quantity('1Gi').isGreaterThan(quantity('1Mi')) && ip('::1').isLoopback()", dialect) is True
    )
    assert "undeclared reference to 'nothing'" in problem_of("nothing()", dialect)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http.Post('https://x', 1).y == 1", "http.Post sends data to a server"),
        ("http.Client('ca').Post('https://x', {}).y == 1", "http.Client trusts a certificate of the policy"),
        ("image.GetMetadata('a').config == 1", "image.GetMetadata reads from the network"),
        ("[1].all(x, image.getMetadata('a').config == x)", "image.getMetadata reads from the network"),
        ("generator.Apply('a', [])", "generator.Apply writes to the cluster"),
        ("random() == 'a'", "random gives another value at each call"),
        ("random('[a-z]') == 'a'", "random gives another value at each call"),
        ("random.random() == 'a'", "random.random gives another value at each call"),
        ("json.encode(1) == '1'", "json.encode always exceeds the cost limit"),
    ],
)
def test_a_function_that_is_missing_says_why(text: str, reason: str) -> None:
    assert reason in problem_of(text, KYVERNO)
    for dialect in (KUBERNETES, CLUSTER_POLICY, GATEKEEPER):
        assert "undeclared reference to" in problem_of(text, dialect)


@pytest.mark.parametrize("dialect", [KUBERNETES, CLUSTER_POLICY, GATEKEEPER], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "text",
    [
        "cel.bind(x, 1, x == 1)",
        "math.greatest(1, 2)",
        "base64.encode(b'a')",
        "regex.extract('a', 'a')",
        "time.now()",
    ],
)
def test_only_kyverno_has_more_libraries(dialect: Dialect, text: str) -> None:
    assert "undeclared reference to" in problem_of(text, dialect)


def test_the_time_is_that_of_the_review() -> None:
    now = Timestamp(1_700_000_000_000_000_000)
    assert evaluated(
        "time.now() == time.now() && time.now() > timestamp('2023-11-14T00:00:00Z')", KYVERNO, **{"@now": now}
    )
    assert "undeclared reference to" in problem_of("object.time.now()", KYVERNO)


@given(st.binary(max_size=40), st.booleans(), st.integers(0, 40))
def test_base64_is_read_as_it_is_written(value: bytes, is_padded: bool, at: int) -> None:
    text = evaluated("base64.encode(object)", KYVERNO, object=value)
    assert isinstance(text, str)
    given_text = text if is_padded else text.rstrip("=")
    given_text = f"{given_text[:at]}\r\n{given_text[at:]}"
    assert evaluated("base64.decode(object)", KYVERNO, object=given_text) == value


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 70))
def test_shifts_multiply_and_divide(value: int, bits: int) -> None:
    left = evaluated(f"math.bitShiftLeft(object, {bits})", KYVERNO, object=value)
    right = evaluated(f"math.bitShiftRight(object, {bits})", KYVERNO, object=value)
    assert isinstance(left, int)
    assert isinstance(right, int)
    assert (left - value * 2**bits) % 2**64 == 0
    assert right % 2**64 == value % 2**64 // 2**bits
    assert all(-(2**63) <= each < 2**63 for each in (left, right))


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers(-9, 9) | st.floats(-9, 9), min_size=3),
)
def test_numbers_are_rounded_and_compared(value: float, numbers: list[float]) -> None:
    found = evaluated("math.round(object)", KYVERNO, object=value)
    assert isinstance(found, float)
    assert Fraction(found) == (abs(Fraction(value)) + Fraction(1, 2)).__floor__() * (1 if value >= 0 else -1)
    least, greatest = (
        evaluated(f"math.{name}(object)", KYVERNO, object=numbers) for name in ("least", "greatest")
    )
    assert (least, greatest) == (min(numbers), max(numbers))


@given(st.text("ab,", max_size=20), st.text("xy", max_size=3), st.integers(-1, 5))
def test_a_replacement_without_references_is_that_of_python(text: str, new: str, limit: int) -> None:
    for pattern in ("a", "ab", "[ab]+"):
        count = max(0, limit)
        expected = text if limit == 0 else re.sub(pattern, new, text, count=count)
        call = f"regex.replace(object[0], '{pattern}', object[1], {limit})"
        assert evaluated(call, KYVERNO, object=[text, new]) == expected
        assert evaluated(f"regex.extractAll(object, '{pattern}')", KYVERNO, object=text) == re.findall(
            pattern, text
        )


_PARTS: Final = st.lists(
    st.sampled_from(["ab", "a.io", "localhost", ":80", ":", "/", "@", "[::1]", "A", "-_.", "%", "x" * 130]),
    max_size=7,
)


@given(_PARTS.map("".join), st.sampled_from(["", ":tag", f"@sha256:{'0' * 64}", f":tag@sha256:{'0' * 64}"]))
def test_an_image_is_put_together_from_its_parts(name: str, identifier: str) -> None:
    text = name + identifier
    image = parse_image(text)
    assert evaluated("isImage(object)", KYVERNO, object=text) is (image is not None)
    if image is None:
        with pytest.raises(EvaluationError, match="could not parse reference"):
            evaluated("image(object)", KYVERNO, object=text)
        return
    again = parse_image(f"{image.registry}/{image.repository}{image.identifier_with_separator}")
    assert again is not None
    assert (again.registry, again.repository, again.digest) == (
        image.registry,
        image.repository,
        image.digest,
    )
    assert image.digest or again.tag == image.tag
    members = ("registry", "repository", "tag", "digest", "identifier", "identifierWithSeparator")
    found = evaluated(f"[{', '.join(f'image(object).{each}()' for each in members)}]", KYVERNO, object=text)
    assert found == [
        *(image.registry, image.repository, image.tag, image.digest),
        *(image.identifier, image.identifier_with_separator),
    ]


_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_json_is_read_as_it_is_written(value: Any) -> None:
    text = evaluated("json.marshal(object)", KYVERNO, object=value)
    assert isinstance(text, str)
    assert json.loads(text, parse_int=float) == value
    assert evaluated("json.unmarshal(object)", KYVERNO, object=text) == value
    assert not set("<>&\u2028") & set(text)


@given(st.text(max_size=200), st.integers(1, 30))
def test_a_compressed_text_is_the_text(text: str, times: int) -> None:
    packed = evaluated("gzip.compress(object)", KYVERNO, object=text * times)
    assert isinstance(packed, bytes)
    assert evaluated("gzip.decompress(object)", KYVERNO, object=packed) == text * times
    assert evaluated("gzip.decompress(object)", KYVERNO, object=packed + packed) == text * times * 2
    with pytest.raises(EvaluationError, match=r"unexpected EOF|gzip|flate"):
        evaluated("gzip.decompress(object)", KYVERNO, object=packed[:-1])


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        (
            "gzip.decompress(object)",
            gzip.compress(b"a" * 2_000_000),
            "found more than 1000000 decompressed bytes",
        ),
        ("json.unmarshal(object)", " " * 1_000_001, "found 1000001 characters of JSON"),
        ("json.unmarshal(object)", "[" * 100_000, "exceeded max depth"),
        ("json.unmarshal(object)", "1" * 10_001, "cannot unmarshal number"),
        ("yaml.parse(object)", "a" * 100_001, "found 100001 characters of YAML"),
        ("yaml.parse(object)", "[" * 1000, "nested deeper than 100 levels"),
        ("yaml.parse(object)", "a: &x\n  b: [*x]", "anchor 'x' value contains itself"),
        ("regex.replace(object, 'a', object)", "a" * 10_001, "expected at most 10000"),
    ],
)
def test_work_has_bounds(text: str, value: object, problem: str) -> None:
    with pytest.raises(EvaluationError, match=problem):
        evaluated(text, KYVERNO, object=value)


@given(st.integers(-(1 << 55), 1 << 55), st.integers(1, 1 << 50))
def test_a_time_is_truncated_to_a_multiple(ns: int, to: int) -> None:
    found = evaluated("time.truncate(object[0], object[1])", KYVERNO, object=[Timestamp(ns), Duration(to)])
    assert isinstance(found, Timestamp)
    assert 0 <= ns - found.ns < to
    assert evaluated("time.truncate(object[0], object[1])", KYVERNO, object=[found, Duration(to)]) == found


_ASCII: Final = st.text([chr(code) for code in range(32, 127)], max_size=6)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | _ASCII,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_ASCII, inner, max_size=4),
        max_leaves=12,
    )
)
def test_json_is_yaml(value: Any) -> None:
    text = json.dumps(value)
    found = evaluated("[yaml.parse(object), json.unmarshal(object)]", KYVERNO, object=text)
    assert isinstance(found, list)
    assert found[0] == found[1] == json.loads(text, parse_int=float)


@given(st.text("abyn01.<*&!-?:[]{}'\"|>%@`#,\n\t \x00\ud800é", max_size=40))
def test_any_text_is_yaml_or_an_error(text: str) -> None:
    problem = ""
    try:
        evaluated("yaml.parse(object)", KYVERNO, object=text)
    except EvaluationError as error:
        problem = str(error)
    assert not problem or problem.startswith("error converting YAML to JSON: ")


def test_an_alias_is_not_unfolded() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 60))
    assert evaluated("yaml.parse(object).l59.size()", KYVERNO, object=f"l0: &l0 [1]\n{levels}") == 9


@pytest.mark.parametrize(
    "text",
    [
        "object.l.all(e, cel.bind(d, e * 10, d > 5 && d == d))",
        "cel.bind(x, object.l, x.exists(y, y == 2)) && variables.v[0] == 2",
        "object.l.exists(e, variables.v.exists(z, cel.bind(w, z, w == e)))",
        "image('ghcr.io/a/b:1').registry() == 'ghcr.io' && math.greatest(2, object.l[0]) == 2",
        "has(parseServiceAccount('system:serviceaccount:a:b').Name)",
        "cel.bind(x, object.missing, true)",
    ],
)
def test_all_ways_to_evaluate_agree(text: str) -> None:
    """As closures, as source code, and with others as one function, in which variables are written out."""
    environment = policy_environment({"v": DYN}, has_params=False, dialect=KYVERNO)
    variables = {"v": compile_expression("cel.bind(q, object.l, q.map(x, x + 1))", environment)}
    expression = compile_expression(text, environment, (BOOL,))
    given = (variables, [{"l": [1, 2, 3]}, *VALUES[1:]], POLICY_LIMIT)
    meter.begin()
    results, left = evaluate_all([expression], *given, Allowance(is_brief=True))
    meter.begin()
    cost = AllTrue([expression], variables).cost(*given)
    assert results == [(True,)]
    assert cost in (POLICY_LIMIT - left, -1)
    expression.program.use_source()
    meter.begin()
    assert evaluate_all([expression], *given, Allowance(is_brief=True)) == (results, left)
