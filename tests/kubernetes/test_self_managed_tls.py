"""The files of the gateway's own certificate. ``tests/e2e/test_self_managed_tls.py`` has the Secret."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, Any

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.kinds.serving_settings import SelfManagedTls
from gateway.engine.credentials.self_managed import next_state
from gateway.server.kubernetes.self_managed_tls import CertificateKeeper

if TYPE_CHECKING:
    from pathlib import Path


class Api:
    """An API server with one Secret, and no registration."""

    def __init__(self, names: tuple[str, ...]) -> None:
        state = next_state(None, names, datetime.datetime.now(datetime.UTC), is_published=False)
        assert state is not None
        self.secret = {"metadata": {"name": "tls"}, "data": state.data()}

    async def find(self, path: str) -> dict[str, Any] | None:
        return self.secret if "/secrets/" in path else None


def test_files_are_written_when_the_certificate_changes_and_only_then(tmp_path: Path) -> None:
    """The front end reads changed files again, and says so in the log."""
    settings = SelfManagedTls("policies", "gateway", "tls", "gateway")

    async def files() -> list[list[tuple[int, int]]]:
        keeper, api = CertificateKeeper(settings, KubernetesSettings(), tmp_path), Api(settings.dns_names)
        found = []
        for is_renewed in (False, False, True):
            if is_renewed:
                api = Api(settings.dns_names)
            await keeper.check(api)  # type: ignore[arg-type]
            status = [file.stat() for file in (keeper.cert_file, keeper.key_file)]
            found.append([(one.st_ino, one.st_mtime_ns) for one in status])
        return found

    first, again, renewed = asyncio.run(files())
    assert again == first
    assert all(before != after for before, after in zip(first, renewed, strict=True))
