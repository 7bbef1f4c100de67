"""Accepted resources can be put in force: none blocks other resources, or the start of a gateway."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.merge.custom_resource import CustomResource, read_resource
from gateway.config.merge.merged import merge
from gateway.config.merge.model import Config
from gateway.engine.engine import Engine
from gateway.observe.telemetry.metrics import Metrics
from tests.config.test_custom import hook, pool, validating
from tests.engines import INLINE

if TYPE_CHECKING:
    from collections.abc import Callable

    import trustme

NAMES = st.lists(st.text("ab-_.[]:/@", max_size=5) | st.sampled_from(["a" * 63, "a" * 64]), max_size=4)


def prepare(*resources: CustomResource) -> None:
    """Prepare *resources* as a gateway does before it puts them in force."""

    async def make() -> None:
        engine = Engine(Metrics(), lambda pool: pool.targets, others_within_s=0.0, surroundings=INLINE)
        await engine.abandon(await engine.prepare(merge(Config(), resources, None).config))
        await engine.close()

    asyncio.run(make())


@given(NAMES, NAMES)
@settings(deadline=None)
def test_names_of_servers_and_services(names: list[str], others: list[str]) -> None:
    name, other = ".".join(names), ".".join(others)
    service = {"service": {"namespace": other, "name": name}}
    prepare(
        pool("p", "127.0.0.1:1", tls={"serverName": name}),
        validating("t", hook()),
        validating("u", hook(clientConfig={"url": f"https://{name}/{other}"})),
        validating("v", hook(clientConfig=service)),
    )


@given(NAMES)
def test_a_host_can_be_looked_up(names: list[str]) -> None:
    host = ".".join(names)
    if not read_resource(pool("p", f"{host}:1")).problems:
        host.encode("idna")


def test_a_label_has_at_most_63_characters() -> None:
    found = {size: read_resource(pool("p", f"{'a' * size}.test:1")).problems for size in (63, 64)}
    assert not found[63]
    assert found[64]


@pytest.mark.parametrize(
    "alter", [lambda pem: b"\0" + pem, lambda pem: pem.replace(b"-\n", b"-\nA: b\n\n", 1)]
)
def test_a_ca_bundle_that_openssl_refuses_is_refused(
    authority: trustme.CA, alter: Callable[[bytes], bytes]
) -> None:
    pem = authority.cert_pem.bytes()
    for content, refused in ((pem, 0), (alter(pem), 1)):
        bundle = base64.b64encode(content).decode()
        resources = (
            pool("p", "127.0.0.1:1", tls={"caBundle": bundle}),
            validating("u", hook(clientConfig={"url": "https://a.test", "caBundle": bundle})),
        )
        assert [len(read_resource(one).problems) for one in resources] == [refused] * 2
        prepare(*resources, validating("v", hook()))
