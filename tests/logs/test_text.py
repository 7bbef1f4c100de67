"""Foreign texts are shown in one line, printable, and without credentials."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.text import printable
from gateway.base.text import endpoint_text, printable_json, rfc3339, shown, url_without_secrets

ANY_TEXT = st.text(st.characters(exclude_categories=()))
SECRET = "S3CRET"


@given(ANY_TEXT, st.integers(3, 200) | st.none())
def test_printable_text_is_one_line_within_its_limit(text: str, limit: int | None) -> None:
    found = printable(text, limit)
    assert found.isprintable()
    assert len(found.splitlines()) <= 1
    assert limit is None or len(found) <= limit
    if text.isprintable() and (limit is None or len(text) <= limit):
        assert found == text


@given(st.recursive(ANY_TEXT | st.integers() | st.none(), st.lists))
def test_shown_values_are_one_short_line(value: object) -> None:
    assert shown(value).isprintable()
    assert len(shown(value)) <= 80


@pytest.mark.parametrize(
    "text",
    ["\n", "\r", "\x1b[2K", "\t", "\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2066", "\ud800", "\0"],
)
def test_line_breaks_and_terminal_commands_are_escaped(text: str) -> None:
    assert printable(f"a{text}b") == f"a{text.encode('unicode_escape').decode()}b"


@given(st.recursive(ANY_TEXT, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner)))
def test_printable_json_has_the_same_value(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    found = printable_json(text)
    assert found.isprintable()
    assert json.loads(found) == value


AROUND = st.text(st.sampled_from("abc:/?#@[]\\%.&= 1\n"), max_size=6)


@given(
    scheme=st.sampled_from(["https://", "http://", "//", "dns://", ""]),
    before=AROUND,
    after=AROUND,
    host=st.sampled_from(["host", "host:8443", "[::1]:8443", "10.0.0.1", ""]),
    path=st.sampled_from(["", "/", "/path/to", "/a@b"]),
)
def test_user_information_is_never_shown(scheme: str, before: str, after: str, host: str, path: str) -> None:
    url = f"{scheme}{before}{SECRET}{after}@{host}{path}"
    assert SECRET not in url_without_secrets(url)


@given(
    scheme=st.sampled_from(["https://", "//", "", "HTTPS://", "unix:"]),
    user=st.sampled_from(["", "user@", "user:pass@"]),
    before=AROUND,
    after=AROUND,
    end=st.sampled_from("?#"),
)
def test_query_and_fragment_are_never_shown(
    scheme: str, user: str, before: str, after: str, end: str
) -> None:
    assert SECRET not in url_without_secrets(f"{scheme}{user}host:8443/path{end}{before}{SECRET}{after}")


@given(ANY_TEXT)
def test_any_text_can_be_shown_as_a_url(text: str) -> None:
    assert url_without_secrets(text).isprintable()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://host:8443/path/to", "https://host:8443/path/to"),
        ("https://[::1]:8443/path", "https://[::1]:8443/path"),
        ("https://user:pass@host/path", "https://…@host/path"),
        ("https://host/path?token=x#y", "https://host/path?…"),
        ("https://host#y", "https://host?…"),
        ("http://user:pa/ss@host/path", "http://…"),
        ("http://user:1?2@host/path", "http://…?…"),
        ("host:50051", "host:50051"),
        ("dns:///host:50051", "dns:///host:50051"),
        ("unix:/run/x.sock", "unix:/run/x.sock"),
        ("https://ho\nst/", "https://ho\\nst/"),
    ],
)
def test_the_rest_of_a_url_is_shown(url: str, expected: str) -> None:
    assert url_without_secrets(url) == expected


@pytest.mark.parametrize(
    ("seconds", "digits", "text"),
    [
        (0, 0, "1970-01-01T00:00:00Z"),
        (1_767_323_045.75, 0, "2026-01-02T03:04:05Z"),
        (1_767_323_045.0625, 3, "2026-01-02T03:04:05.062Z"),
        (1_767_323_045.0625, 6, "2026-01-02T03:04:05.062500Z"),
    ],
)
def test_a_time_is_in_utc_with_the_wanted_digits(seconds: float, digits: int, text: str) -> None:
    assert rfc3339(seconds, digits) == text


@pytest.mark.parametrize(
    ("address", "name", "expected"),
    [
        ("ipv4:10.0.0.1:50051", "policies.team.svc:50051", "policies.team.svc:50051 at 10.0.0.1"),
        ("ipv6:[fd00::1]:50051", "policies.team.svc:50051", "policies.team.svc:50051 at [fd00::1]"),
        ("ipv4:10.0.0.1:50051", "", "10.0.0.1:50051"),
        ("unix:/run/gateway/a/policies.sock", "", "unix:…/policies.sock"),
        ("unix:/tmp/x/4f.sock", "started by the gateway", "started by the gateway"),
        ("hooks.shop.svc:443", "", "hooks.shop.svc:443"),
    ],
)
def test_an_endpoint_is_shown_by_its_name(address: str, name: str, expected: str) -> None:
    assert endpoint_text(address, name) == expected
