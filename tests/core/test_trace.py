"""The trace context of requests, as W3C Trace Context says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.trace import read_traceparent, trace_id_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    ("header", "traceparent"),
    [
        (VALID, VALID),
        (f"00-{TRACE}-{PARENT}-00", f"00-{TRACE}-{PARENT}-00"),
        (f"00-{TRACE}-{PARENT}-ff", f"00-{TRACE}-{PARENT}-ff"),
        (f"cc-{TRACE}-{PARENT}-01", VALID),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like", VALID),
    ],
    ids=["sampled", "not sampled", "unknown flags", "later version", "later version with more fields"],
)
def test_a_valid_header_is_read_as_version_0(header: str, traceparent: str) -> None:
    assert read_traceparent(header.encode()) == traceparent
    assert trace_id_of(traceparent) == TRACE


@pytest.mark.parametrize(
    "header",
    [
        b"",
        VALID.encode()[:-1],
        VALID.encode() + b"0",
        VALID.encode() + b"-00",
        f"cc-{TRACE}-{PARENT}-01.00".encode(),
        f"ff-{TRACE}-{PARENT}-01".encode(),
        f"00-{'0' * 32}-{PARENT}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        VALID.upper().encode(),
        f"{VALID}, {VALID}".encode(),
        f" {VALID}".encode(),
        VALID.encode() + b"\n",
        f"00-{TRACE}-{PARENT[:-1]}".encode() + b"\xff-01",
        VALID.replace("-", "_").encode(),
    ],
)
def test_an_invalid_header_is_ignored(header: bytes) -> None:
    assert read_traceparent(header) == ""


@given(
    st.binary(max_size=80) | st.builds(lambda a, b: VALID.encode()[:a] + b, st.integers(0, 55), st.binary())
)
def test_what_is_passed_on_has_one_form(header: bytes) -> None:
    traceparent = read_traceparent(header)
    assert traceparent == "" or read_traceparent(traceparent.encode()) == traceparent
    assert len(traceparent) in (0, 55)
