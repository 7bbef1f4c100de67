"""Laws of the libraries' functions, and bounds of their work."""

from __future__ import annotations

import ipaddress
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel import meter
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.libraries import FUNCTIONS
from gateway.pure.cel.libraries.formatting import check_format
from gateway.pure.cel.meter import EXPRESSION_LIMIT, start
from gateway.pure.cel.regex import LONGEST_PATTERN, compile_regex
from gateway.pure.cel.values import Optional, Uint

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

CALLS: dict[str, Callable[..., Any]] = {each.overload: each.call for each in FUNCTIONS}
SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
TEXTS = st.text(alphabet="ab é\U0001f600", max_size=12)


@pytest.fixture(autouse=True)
def budget() -> None:
    start(EXPRESSION_LIMIT)


def call(overload: str, *arguments: object) -> Any:
    start(EXPRESSION_LIMIT)
    return CALLS[overload](*arguments)


def test_overloads_are_chosen_by_types() -> None:
    """No overload is declared twice: one of the two would never be called."""
    assert len(CALLS) == len(FUNCTIONS)


@given(st.integers(-(10**15), 10**15), st.sampled_from(sorted(SUFFIXES)), st.integers(-(10**15), 10**15))
def test_a_quantity_has_the_value_of_its_notation(number: int, suffix: str, other: int) -> None:
    """Comparison, sum and difference are those of exact numbers, in any notation."""
    one = call("string_to_quantity", f"{number}{suffix}")
    two = call("string_to_quantity", f"{other}m")
    exact, second = Fraction(number) * Fraction(10) ** SUFFIXES[suffix], Fraction(other, 1000)
    assert call("quantity_compare_to", one, two) == (exact > second) - (exact < second)
    for overload, result in (("quantity_add", exact + second), ("quantity_sub", exact - second)):
        found = call(overload, one, two)
        assert Fraction(found.number) * Fraction(10) ** found.exponent == result
    assert call("quantity_sign", one) == (number > 0) - (number < 0)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12))
def test_quantities_are_equal_in_any_notation(value: Decimal) -> None:
    """The same number with and without suffix is the same value, with the same hash."""
    plain, milli = (
        call("string_to_quantity", f"{value:f}"),
        call("string_to_quantity", f"{int(value * 1000)}m"),
    )
    assert plain == milli
    assert hash(plain) == hash(milli)


@given(st.ip_addresses(), st.integers(0, 128))
def test_a_prefix_contains_the_same_addresses_as_in_ipaddress(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int
) -> None:
    """Masked, a prefix is the network; it contains its addresses and itself."""
    bits = min(bits, address.max_prefixlen)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return
    prefix = call("string_to_cidr", f"{address}/{bits}")
    network = ipaddress.ip_network(f"{address}/{bits}", strict=False)
    assert str(call("cidr_masked", prefix)) == str(network)
    assert not bits or call("cidr_contains_ip_string", prefix, str(address)) is True
    assert call("cidr_contains_cidr", prefix, prefix) is True


@given(TEXTS, TEXTS, st.integers(-2, 14))
def test_positions_in_a_string_count_characters(text: str, part: str, at: int) -> None:
    """indexOf is the first position at which the part stands, lastIndexOf the last not after the offset."""
    every = [i for i in range(len(text) + 1) if text.startswith(part, i)]
    assert call("string_index_of_string", text, part) == (every[0] if every else -1)
    assert call("string_last_index_of_string", text, part) == (every[-1] if every else -1)
    if at < 0:
        with pytest.raises(EvaluationError):
            call("string_last_index_of_string_int", text, part, at)
    elif part:
        before = [i for i in every if i <= at] if at < len(text) else []
        assert call("string_last_index_of_string_int", text, part, at) == (before[-1] if before else -1)


@given(TEXTS, st.sampled_from(["", "a", "ab", " "]), st.integers(-1, 5))
def test_split_and_join_are_inverse(text: str, separator: str, limit: int) -> None:
    """Splitting removes the separators only, and makes at most the given number of parts."""
    parts = call("string_split_string_int", text, separator, limit)
    if limit != 0 and (text or separator):
        assert call("list_join_string", parts, separator) == text
    assert limit < 0 or len(parts) <= limit


@given(st.lists(st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab", max_size=2), max_size=30))
def test_sets_and_distinct_agree(values: list[object]) -> None:
    """The distinct elements of a list are equivalent to it, and each occurs once."""
    distinct = call("list_distinct", values)
    assert call("list_sets_equivalent_list", distinct, values)
    assert all(call("list_a_index_of_int", distinct, one) == i for i, one in enumerate(distinct))
    assert call("list_a_last_index_of_int", distinct, object()) == -1


@given(st.lists(st.integers(), max_size=40))
def test_sorting_sorts(values: list[int]) -> None:
    """The result has the same elements, in order."""
    result = call("list_int_sort", values)
    assert result == sorted(values)
    assert call("list_int_is_sorted_bool", result)
    assert call("list_reverse", call("list_reverse", values)) == values


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=6), st.integers(0, 3))
def test_flatten_removes_levels(values: list[list[int]], depth: int) -> None:
    """One level holds the elements of the lists; a list that is flat already stays as it is."""
    flat = [one for each in values for one in each]
    assert call("list_flatten", values) == flat
    assert call("list_flatten_int", flat, depth) == flat


@given(st.text(max_size=20))
def test_only_valid_texts_are_parsed(text: str) -> None:
    """isX returns whether X parses, for any text, and raises nothing else."""
    for question, parser in (
        ("is_url_string", "string_to_url"),
        ("is_quantity_string", "string_to_quantity"),
        ("is_ip", "string_to_ip"),
        ("is_cidr", "string_to_cidr"),
        ("is_semver_string", "string_to_semver"),
    ):
        said = call(question, text)
        try:
            call(parser, text)
        except EvaluationError:
            # A fragment may be wrong where the rest is a URL, which isURL does not look at.
            assert not said or (question == "is_url_string" and "#" in text)
        else:
            assert said or (question == "is_url_string" and "#" in text)


@given(
    st.text("%sdfexXob.0129", max_size=8),
    st.lists(st.integers() | st.text(max_size=3) | st.none(), max_size=3),
)
def test_a_format_that_is_valid_can_be_applied(text: str, arguments: list[object]) -> None:
    """A format that is accepted at compile time for some types does not fail for values of these types."""
    kinds = ["string" if isinstance(one, str) else "null_type" if one is None else "int" for one in arguments]
    if check_format(text, kinds) is None and not ({"f", "e"} & set(text)):
        assert isinstance(call("string_format", text, arguments), str)


BIG = "a" * 3_000_000
MANY: list[Any] = [""] * 300_000
SHARED: list[Any] = [MANY] * 1000


@pytest.mark.parametrize(
    ("overload", "arguments"),
    [
        ("string_replace_string_string", (BIG, "", BIG)),
        ("string_replace_string_string", ("a" * 30, "a", BIG)),
        ("string_split_string", (BIG * 4, "")),
        ("string_find_all_string", (BIG, "")),
        ("list_flatten", (SHARED,)),
        ("list_includes_dyn_dyn", (SHARED, 1)),
        ("list_distinct", (MANY,)),
        ("list_sets_intersects_list", (MANY, SHARED)),
        ("list_join_string", (MANY, BIG)),
        ("string_format", ("%s", [SHARED])),
        ("string_format", ("%.999999999f", [1.0])),
        ("format-validate", (CALLS["format.dns1123Subdomain"](), BIG)),
        ("string_to_semver", ("1.0.0-" + "a." * 1_000_000 + "a",)),
    ],
)
def test_expensive_calls_exceed_the_budget(
    overload: str, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megabytes of input never make gigabytes of work or of result."""
    monkeypatch.setattr(meter, "_STEPS", 100_000_000)
    with pytest.raises(CostExceeded):
        call(overload, *arguments)


def test_a_pattern_is_bounded() -> None:
    """A pattern that is too long, or needs too much memory in RE2, is an error."""
    start(EXPRESSION_LIMIT)
    for pattern in ("a" * (LONGEST_PATTERN + 1), "((a{100}){100}){100}", "\\C", "("):
        with pytest.raises(EvaluationError, match="error parsing regexp"):
            compile_regex(pattern)
    with pytest.raises(EvaluationError, match="found 52390 characters, expected at most 50000"):
        compile_regex("\\pL" * 130)


def test_numbers_keep_their_type() -> None:
    """The sum, the least and the greatest of unsigned numbers are unsigned."""
    values = [Uint(1), Uint(2)]
    assert type(call("list_uint_sum_uint", values)) is Uint
    assert type(call("list_uint_max_uint", values)) is Uint
    assert call("list_first", values) == Optional(Uint(1))
