"""The gateway's own CA and certificate: API servers trust the served certificate at all times."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.engine.credentials.self_managed import (
    AUTHORITY_LIFETIME,
    KEPT_FOR,
    PUBLISHED_FOR,
    RENEW_AT,
    SERVER_LIFETIME,
    TlsState,
    next_state,
    read_state,
)

NAMES = ("gateway.policies.svc", "gateway.policies")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                datetime.timedelta(seconds=30),
                PUBLISHED_FOR,
                KEPT_FOR,
                SERVER_LIFETIME / 6,
                AUTHORITY_LIFETIME / 9,
            ]
        ),
        st.booleans(),
    ),
    max_size=25,
)


def trusts(bundle: bytes, state: TlsState, now: datetime.datetime) -> bool:
    """Whether a client with *bundle* accepts the served certificate."""
    certificate = state.server.certificate
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, InvalidSignature):
            continue
        return authority.not_valid_before_utc <= now <= authority.not_valid_after_utc
    return False


def first(now: datetime.datetime = START) -> TlsState:
    state = next_state(None, NAMES, now, is_published=False)
    assert state is not None
    return state


@settings(deadline=None, max_examples=60)
@given(steps)
def test_a_registration_trusts_the_served_certificate_at_every_step(path: list[tuple[Any, bool]]) -> None:
    """A step is a time, and whether the registration can be written. Outages are shorter than 30 days."""
    state, now = first(), START
    registered = state.ca_bundle
    outage = datetime.timedelta(0)
    for pause, can_write in path:
        now += pause
        outage = datetime.timedelta(0) if can_write or pause > SERVER_LIFETIME / 6 else outage + pause
        if outage > SERVER_LIFETIME * (1 - RENEW_AT):
            return
        is_long = pause > SERVER_LIFETIME * (1 - RENEW_AT)
        if can_write or is_long:
            registered = state.ca_bundle
        is_published = registered == state.ca_bundle
        following = next_state(state, NAMES, now, is_published=is_published)
        if following is not None:
            state = following
            if can_write or is_long:
                registered = state.ca_bundle
        assert trusts(registered, state, now)
        assert state.server.certificate.not_valid_after_utc > now


@settings(deadline=None, max_examples=30)
@given(steps)
def test_a_state_is_read_from_the_secret_as_it_was_written(path: list[tuple[Any, bool]]) -> None:
    state, now = first(), START
    for pause, _ in path:
        now += pause
        state = next_state(state, NAMES, now, is_published=True) or state
        found = read_state(state.data())
        assert found is not None
        assert found.data() == state.data()


def test_a_new_authority_signs_only_after_it_was_published() -> None:
    state = first()
    due = START + AUTHORITY_LIFETIME * RENEW_AT
    # Renewed on the way, as every 60 days.
    state = next_state(state, NAMES, due - KEPT_FOR, is_published=True) or state
    with_both = next_state(state, NAMES, due, is_published=True)
    assert with_both is not None
    assert len(with_both.authorities) == 2
    assert with_both.server is state.server
    assert next_state(with_both, NAMES, due + PUBLISHED_FOR, is_published=False) is None
    assert next_state(with_both, NAMES, due + PUBLISHED_FOR / 2, is_published=True) is None
    signed = next_state(with_both, NAMES, due + PUBLISHED_FOR, is_published=True)
    assert signed is not None
    assert trusts(signed.ca_bundle, signed, due + PUBLISHED_FOR)
    assert not trusts(state.ca_bundle, signed, due + PUBLISHED_FOR)
    later = due + PUBLISHED_FOR + KEPT_FOR
    alone = next_state(signed, NAMES, later, is_published=True)
    assert alone is not None
    assert alone.authorities == signed.authorities[:1]


def test_another_name_needs_another_certificate_of_the_same_authority() -> None:
    state = first()
    renamed = next_state(state, ("other.policies.svc",), START + PUBLISHED_FOR, is_published=True)
    assert renamed is not None
    assert renamed.authorities == state.authorities
    assert next_state(state, NAMES, START + PUBLISHED_FOR, is_published=True) is None


@pytest.mark.parametrize("key", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("value", [None, "", "bm8=", "***", "other"])
def test_a_damaged_secret_is_unusable(key: str, value: str | None) -> None:
    data: dict[str, object] = dict(first().data())
    if value == "other":
        data[key] = first().data()[key]
    elif value is None:
        del data[key]
    else:
        data[key] = value
    state = read_state(data)
    if value == "other" and key == "ca.crt":
        assert state is None, "the key is of another CA"
    elif value == "other" and key == "tls.crt":
        assert state is None, "the key is of another certificate"
    else:
        assert state is None or value == "other"
