"""``caBundleFrom``: whichever order of events arrives, the last valid bundle is in force."""

from __future__ import annotations

import logging
import ssl
from functools import cache

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.files import UnusableFileError
from gateway.engine.credentials.ca_bundle import MAX_BYTES, CaBundle, bundle_in
from gateway.pure.core.webhook import CaBundleSource

SOURCE = CaBundleSource("Secret", "cert-manager", "ca", "ca.crt")


@cache
def authority(number: int) -> bytes:
    return trustme.CA(organization_name=str(number), key_type=trustme.KeyType.ECDSA).cert_pem.bytes()


INVALID = (
    None,
    b"",
    b"\xff",
    b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    b"x" * (MAX_BYTES + 1),
)


@given(st.lists(st.one_of(st.integers(0, 3), st.sampled_from(INVALID)), max_size=12))
def test_the_last_valid_bundle_is_in_force_after_any_events(events: list[int | bytes | None]) -> None:
    bundle, last = CaBundle(SOURCE), b""
    for event in events:
        content = authority(event) if isinstance(event, int) else event
        bundle.see(bundle_in(content))
        if isinstance(event, int):
            assert content is not None
            last = content
        assert bundle.pem.splitlines() == last.splitlines()
        is_valid = isinstance(event, int)
        assert bundle.state == ("current" if is_valid else "kept" if last else "missing")
        assert bool(bundle.warning) is not is_valid
    assert bundle.is_read.is_set() is bool(events)


def test_a_bundle_that_did_not_change_stays_the_same_object() -> None:
    """So that connections are not replaced when another field of the object changes."""
    bundle = CaBundle(SOURCE)
    bundle.see(bundle_in(authority(1)))
    before = bundle.pem
    bundle.see(bundle_in(authority(1) + b"# a comment\n"))
    assert bundle.pem is before


def test_certificates_are_taken_and_nothing_else() -> None:
    key = trustme.CA().private_key_pem.bytes()
    found = bundle_in(b"# before\n" + authority(1) + key + authority(2))
    assert isinstance(found, bytes)
    assert found.count(b"BEGIN CERTIFICATE") == 2
    assert b"PRIVATE" not in found
    assert len(ssl.create_default_context(cadata=found.decode()).get_ca_certs()) == 2


@pytest.mark.parametrize("content", INVALID)
def test_messages_have_nothing_of_the_content(content: bytes | None) -> None:
    found = bundle_in(content)
    assert isinstance(found, UnusableFileError)
    assert "PRIVATE" not in str(found)
    assert "xx" not in str(found)


def test_a_change_of_state_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.engine.credentials")
    bundle = CaBundle(SOURCE)
    for content in (None, None, authority(1), authority(1), b"", b"", authority(1)):
        bundle.see(bundle_in(content))
    said = [(record.levelname, record.getMessage().partition(": ")[0]) for record in caplog.records]
    name = "CA bundle of Secret cert-manager/ca, key ca.crt"
    assert said == [
        ("WARNING", f"{name} cannot be used, its webhooks fail by their failurePolicy"),
        ("INFO", f"{name} in force for new connections"),
        ("WARNING", f"{name} cannot be used, the last valid one stays in force"),
        ("INFO", f"{name} in force for new connections"),
    ]
    assert caplog.records[1].getMessage().endswith(": 1 certificates")
