"""The pattern of quantities, beside their parser."""

from __future__ import annotations

import re
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.quantity import PATTERN, MalformedQuantity, parse

DIGITS = st.text("0123456789", max_size=20)
SUFFIXES = st.one_of(
    st.sampled_from(["", *"numkMGTPE", *(f"{unit}i" for unit in "KMGTPE")]),
    st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-400, 400)),
)


def is_quantity(text: str) -> bool:
    """Return whether *text* can be parsed."""
    with suppress(MalformedQuantity):
        parse(text)
        return True
    return False


@given(st.sampled_from(["", "+", "-"]), DIGITS, st.sampled_from(["", "."]), DIGITS, SUFFIXES)
def test_what_has_digits_and_a_known_suffix_matches_and_is_a_quantity(
    sign: str, whole: str, point: str, fraction: str, suffix: str
) -> None:
    text = f"{sign}{whole}{point}{fraction}{suffix}"
    matches = re.search(PATTERN, text) is not None
    assert matches is bool(whole or fraction)
    assert not matches or is_quantity(text)


@given(st.text("0179.+-eEinumkKMGTP", max_size=8))
def test_a_text_with_a_digit_is_a_quantity_only_if_it_matches(text: str) -> None:
    if re.match("[+-]?[.]?[0-9]", text) and is_quantity(text):
        assert re.search(PATTERN, text), text
