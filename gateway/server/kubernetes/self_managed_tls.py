"""Keeps the gateway's certificate in a Secret, in files for the front end, and in the registration.

Every replica does the same at any time. A Secret is written with the version that was read, so that of
several replicas one succeeds and the others read its result. The ``caBundle`` of the registered entries is
set to the CAs of the Secret wherever it differs.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import logging
import random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.engine.credentials.issuing import write_private
from gateway.engine.credentials.self_managed import TlsState, next_state, read_state
from gateway.server.kubernetes.access import ClusterAccess, connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.kinds.serving_settings import SelfManagedTls
    from gateway.server.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

log = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 10.0
RETRY_AFTER_S: Final = 2.0
_ATTEMPTS: Final = 5
_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422
_LABEL: Final = "app.kubernetes.io/managed-by"
_OWNER: Final = "admission-gateway"
_KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1"


async def read_ca_bundle(cluster: KubernetesSettings, settings: SelfManagedTls) -> str:
    """Return the CAs that the gateway issued itself, as a caBundle: PEM in base64.

    Raises:
        ClusterError: the Secret cannot be read, or has none yet.
    """
    api = await asyncio.to_thread(connect, cluster)
    try:
        secret = await api.get(_secret_path(settings))
    finally:
        await api.close()
    state = read_state(secret.get("data") or {})
    if state is None:
        raise ClusterError("it has no certificate of the gateway yet")
    return base64.b64encode(state.ca_bundle).decode()


class CertificateKeeper:
    """The task that keeps the certificate. Make it on a running event loop."""

    def __init__(self, settings: SelfManagedTls, cluster: KubernetesSettings, folder: Path) -> None:
        """*folder* is for the files; only this process may write to it."""
        self._settings = settings
        self._access = ClusterAccess(cluster)
        self._folder = folder
        self.cert_file = folder / "tls.crt"
        self.key_file = folder / "tls.key"
        self._written: tuple[bytes, bytes] | None = None
        self._warned_of = ""

    async def start(self) -> None:
        """Obtain the certificate, and write its files; wait for the cluster as long as it takes."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            if await self._check():
                return
            await asyncio.sleep(RETRY_AFTER_S)

    async def run(self) -> None:
        """Keep the certificate up to date, until cancelled."""
        try:
            while True:
                await asyncio.sleep(CHECK_EVERY_S * random.uniform(0.8, 1.2))  # noqa: S311
                await self._check()
        finally:
            await self._access.close()

    async def _check(self) -> bool:
        """Do what is due now; return whether that was possible. Otherwise the reason is logged, once."""
        try:
            async with self._access.api() as api:
                await self.check(api)
        except ClusterError as error:
            if str(error) != self._warned_of:
                self._warned_of = str(error)
                log.warning("the gateway's certificate cannot be kept up to date now: %s", error)
            return False
        except Exception:
            log.exception("the gateway's certificate cannot be kept up to date: internal error")
            return False
        self._warned_of = ""
        return True

    async def check(self, api: ApiClient) -> None:
        """Write the Secret, the files and the registration, as far as they have to change.

        Raises:
            ClusterError: the API server refuses it, or the Secret belongs to another program.
        """
        settings = self._settings
        path = _secret_path(settings)
        for _ in range(_ATTEMPTS):
            secret = await api.find(path)
            state = self._state_of(secret)
            is_published = state is not None and await self._publish(api, state)
            now = datetime.datetime.now(datetime.UTC)
            following = next_state(state, settings.dns_names, now, is_published=is_published)
            if following is not None:
                try:
                    await self._store(api, path, secret, following)
                except ClusterError as error:
                    if error.status == _CONFLICT:
                        # Another replica was first: its result counts.
                        continue
                    raise
                log.info("the gateway's certificate was renewed in Secret %s/%s", *settings.secret_key)
                await self._publish(api, following)
            usable = following or state
            assert usable is not None
            self._write_files(usable)
            return
        raise ClusterError(f"Secret {settings.namespace}/{settings.secret} changes all the time", _CONFLICT)

    def _state_of(self, secret: Json | None) -> TlsState | None:
        if secret is None:
            return None
        data = secret.get("data") or {}
        state = read_state(data)
        if state is None and data and secret["metadata"].get("labels", {}).get(_LABEL) is None:
            name = f"{self._settings.namespace}/{self._settings.secret}"
            raise ClusterError(
                f"Secret {name} was not made by the gateway: it has no ca.key, or no label "
                f"{_LABEL}. Delete it, or name another one in tls.selfManaged.secret"
            )
        if state is None and data:
            log.warning("Secret %s/%s is unusable and is replaced", *self._settings.secret_key)
        return state

    async def _store(self, api: ApiClient, path: str, secret: Json | None, state: TlsState) -> None:
        name = self._settings.secret
        if secret is None:
            metadata: Json = {"name": name, "labels": {_LABEL: _OWNER}}
            document = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": state.data()}
            await api.write("POST", path.rpartition("/")[0], document)
            return
        # Helm's value of the label stays: the field would be a conflict at the next upgrade.
        labels = {_LABEL: _OWNER, **secret["metadata"].get("labels", {})}
        document = {**secret, "metadata": {**secret["metadata"], "labels": labels}, "data": state.data()}
        await api.write("PUT", path, document)

    def _write_files(self, state: TlsState) -> None:
        # Not the states: two keys that were read are never equal.
        pair = state.server.key_pem, state.server.certificate_pem
        if pair == self._written:
            return
        # The key first: with the certificate before it, the front end would see a pair that does not match.
        write_private(self.key_file, pair[0])
        write_private(self.cert_file, pair[1])
        self._written = pair

    async def _publish(self, api: ApiClient, state: TlsState) -> bool:
        """Set the caBundle of the registered entries; return whether all of them have it now."""
        bundle = base64.b64encode(state.ca_bundle).decode()
        is_published = True
        for kind in _KINDS:
            path = f"{_REGISTRATIONS}/{kind}/{quote(self._settings.registration, safe='')}"
            document = await api.find(path)
            if document is None:
                continue
            version = document["metadata"].get("resourceVersion")
            changes: list[Json] = [
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
                for index in self._entries(document)
                if document["webhooks"][index]["clientConfig"].get("caBundle") != bundle
            ]
            if not changes:
                continue
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            try:
                await api.patch(path, {}, orjson.dumps([test, *changes]), "application/json-patch+json")
            except ClusterError as error:
                if error.status not in (_CONFLICT, _INVALID, _NOT_FOUND):
                    raise
                # It has changed meanwhile; the next check looks again.
                is_published = False
            else:
                log.info("the caBundle of %s %s was updated", kind, self._settings.registration)
        return is_published

    def _entries(self, document: Json) -> Iterator[int]:
        """Yield the indices of the entries of *document* that lead to the gateway's Service."""
        for index, entry in enumerate(document.get("webhooks") or ()):
            match entry:
                case {"clientConfig": {"service": {"namespace": namespace, "name": name}}}:
                    if (namespace, name) == (self._settings.namespace, self._settings.service):
                        yield index


def _secret_path(settings: SelfManagedTls) -> str:
    namespace, name = (quote(part, safe="") for part in settings.secret_key)
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"
