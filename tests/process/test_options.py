"""The command line of ``serve`` over the settings of the configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gateway.config.kinds.addresses import is_loopback_address, parse_host_port
from gateway.server.options import Options
from tests.faults.rotating import settings_document
from tests.kit import pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = ("0.0.0.0", "[::]", "10.0.0.1", "gateway.example", "localhost", "127.0.0.1")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("field", ["listen", "adminListen"])
def test_no_other_machine_reaches_a_development_gateway(tmp_path: Path, host: str, field: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        pool_document("pool", "ipv4:127.0.0.1:1")
        + webhook_document("validate", "v", "pool", {})
        + settings_document(**{field: f"{host}:7000"})
    )
    options = Options(config=(file,), dev=True, state=tmp_path / "state")
    settings, plain = options.load().gateway, replace(options, dev=False).load().gateway
    for found, written in ((settings.listen, plain.listen), (settings.admin_listen, plain.admin_listen)):
        assert is_loopback_address(found)
        assert parse_host_port(found)[1] == parse_host_port(written)[1]
    chosen = replace(options, listen="0.0.0.0:1", admin_listen="0.0.0.0:2").load().gateway
    assert (chosen.listen, chosen.admin_listen) == ("0.0.0.0:1", "0.0.0.0:2")
