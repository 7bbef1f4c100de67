"""The objects of moved policies in the API server: their documents, and the requests for them."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from gateway.base.errors import ClusterError
from gateway.config.yaml.documents import plural_of
from gateway.pure.admission_policies.placing import (
    BINDINGS,
    POLICIES,
    Delete,
    Found,
    Named,
    SetSeal,
    Write,
    in_force,
)
from gateway.server.kubernetes.access import connect
from gateway.server.kubernetes.webhook_configurations import list_items

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient

VERSION: Final = "admissionregistration.k8s.io/v1"
FIELD_MANAGER: Final = "admission-gateway-placement"
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "admission-gateway")
INSTALLATION: Final = "admission-gateway.io/installation"
DIGEST: Final = "admission-gateway.io/source-digest"
SEAL: Final = "admission-gateway.io/in-force"
UNREGISTERED: Final = "admission-gateway.io/in-api-server"
"""Annotation of a registration: JSON of the policies that it leaves out, by installation."""
PROOF: Final = "admission-gateway.io/placement-proof"
PROBES: Final = 4
"""Connections on which a proof is repeated, for several API servers behind one address."""
READ_WITHIN_S: Final = 8.0
"""How long API servers may take to read what was written, until the next proof. No look is made meanwhile, so
it is less than ``VIEW_S``."""
_AGAIN_S: Final = 0.2
_NOT_FOUND, _CONFLICT, _PAGE = 404, 409, "500"


class NotOwnedError(ClusterError):
    """An object of the name exists that the gateway does not own."""


class PlacedObjects:
    """The policies and bindings in the API server that one installation owns."""

    def __init__(self, settings: KubernetesSettings, installation: str, lease_path: str) -> None:
        """*installation* is ``NAMESPACE/NAME``. Proofs are dry runs of a change of the Lease *lease_path*."""
        self._settings = settings
        self.installation = installation
        self._lease_path = lease_path
        self._namespace, _, name = installation.partition("/")
        self.has_proofs = False
        """Whether there are objects of proofs."""
        self._proof_name = f"proof.{name}.{self._namespace}.admission-gateway.io"

    async def found(self, api: ApiClient) -> list[Found]:
        """Return all objects that the installation owns, except those of proofs.

        Raises:
            ClusterError: they cannot be read.
        """
        documents = [
            (kind, document)
            for kind in (*BINDINGS, *POLICIES)
            for document in await self._list(api, kind)
            if self._owns(document)
        ]
        self.has_proofs = any(one["metadata"]["name"] == self._proof_name for _, one in documents)
        return [
            self._read(kind, one) for kind, one in documents if one["metadata"]["name"] != self._proof_name
        ]

    async def _list(self, api: ApiClient, kind: str) -> list[dict[str, Any]]:
        params = {"labelSelector": "=".join(MANAGED_BY), "limit": _PAGE}
        found: list[dict[str, Any]] = []
        try:
            async for page in api.pages(_path(kind), params):
                found += list_items(page, api.url)
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise ClusterError(f"cannot list {plural_of(kind)}: {error}", error.status) from error
            # An API server that is too old for the kind.
        return found

    @staticmethod
    def _read(kind: str, document: Mapping[str, Any]) -> Found:
        metadata = document["metadata"]
        annotations = metadata.get("annotations") or {}
        key = Named(kind, metadata["name"])
        of = POLICIES.get(kind)
        policy = key if of is None else Named(of, str(document.get("spec", {}).get("policyName")))
        return Found(
            key,
            policy,
            str(metadata.get("uid")),
            int(metadata.get("generation", 0)),
            str(metadata["resourceVersion"]),
            str(annotations.get(DIGEST, "")),
            str(annotations.get(SEAL, "")) if of is None else "",
        )

    async def write(self, api: ApiClient, step: Write) -> Found:
        """Create or replace an object, and return what it is now.

        Raises:
            NotOwnedError: another program has an object of this name.
            ClusterError: the API server refuses it, or there was no answer.
        """
        version = None if step.found is None else step.found.version
        written = await self._put(api, step.key, step.spec, step.digest, version)
        return self._read(step.key.kind, written)

    async def _put(
        self, api: ApiClient, key: Named, spec: Mapping[str, Any], digest: str, version: str | None
    ) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": key.name,
            "labels": dict([MANAGED_BY]),
            "annotations": {INSTALLATION: self.installation, DIGEST: digest},
        }
        document = {"apiVersion": VERSION, "kind": key.kind, "metadata": metadata, "spec": spec}
        path, manager = _path(key.kind), f"?fieldManager={FIELD_MANAGER}"
        if version is not None:
            metadata["resourceVersion"] = version
            return await api.write("PUT", _path(*key) + manager, document)
        try:
            return await api.write("POST", path + manager, document)
        except ClusterError as error:
            if error.status != _CONFLICT:
                raise
            present = await api.find(_path(*key))
            if present is not None and not self._owns(present):
                raise NotOwnedError(
                    f"a {key.kind} {key.name} exists that the gateway does not own: delete it, or rename the "
                    "policy"
                ) from error
            raise

    async def changed_by(self, api: ApiClient, key: Named) -> str:
        """Return the field managers of an object beside the gateway, in the order of their changes.

        Raises:
            ClusterError: it cannot be read.
        """
        present = await api.find(_path(*key)) or {}
        managers = present.get("metadata", {}).get("managedFields") or ()
        changes = sorted((str(one.get("time")), str(one.get("manager"))) for one in managers)
        return ", ".join(dict.fromkeys(name for _, name in changes if name != FIELD_MANAGER))

    async def set_seal(self, api: ApiClient, step: SetSeal) -> None:
        """Write or remove the seal of a policy, if it is as it was found.

        Raises:
            ClusterError: it is not, or the API server refuses, or there was no answer.
        """
        found = step.found
        metadata = {
            "resourceVersion": found.version,
            "uid": found.uid,
            "annotations": {SEAL: step.seal or None},
        }
        body, params = orjson.dumps({"metadata": metadata}), {"fieldManager": FIELD_MANAGER}
        await api.patch(_path(*found.key), params, body, "application/merge-patch+json")

    async def delete(self, api: ApiClient, step: Delete) -> None:
        """Delete an object if it is as it was found.

        Raises:
            ClusterError: it is not, or the API server refuses, or there was no answer.
        """
        await _delete(api, step.found.key, {"uid": step.found.uid, "resourceVersion": step.found.version})

    async def unregistered(self, api: ApiClient) -> set[Named]:
        """Return the policies that a registration of this installation leaves out.

        Raises:
            ClusterError: the registrations cannot be read.
        """
        found = set[Named]()
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            params = {"labelSelector": "app.kubernetes.io/name=admission-gateway", "limit": _PAGE}
            async for page in api.pages(_path(kind), params):
                for document in list_items(page, api.url):
                    annotations = document.get("metadata", {}).get("annotations") or {}
                    found |= policies_left_out(annotations.get(UNREGISTERED), self.installation)
        return found

    # -- proofs -----------------------------------------------------------------------------------

    async def prove(self, api: ApiClient, kinds: Collection[str]) -> str:
        """Prove that API servers have read all objects of *kinds* that were written before.

        A policy and its binding, which have a new token, are written after them. The binding selects objects
        with the token as a label, and the policy answers with the token. So once a dry run is answered with
        it, the informers of both kinds have all that was written before, and policies are in force as they
        are in these informers. This is repeated on new connections.

        Returns why it is not proven, or an empty text.

        Raises:
            ClusterError: a policy of the proof cannot be written.
        """
        token, reason = secrets.token_hex(16), ""
        for kind in sorted(kinds):
            await self._write_proof(api, kind, token)
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                for _ in range(PROBES):
                    # A load balancer may choose the API server by connection.
                    probe = await asyncio.to_thread(connect, self._settings)
                    try:
                        for kind in sorted(kinds):
                            while True:
                                reason = await self._answer(probe, kind, token)
                                if not reason:
                                    break
                                await asyncio.sleep(_AGAIN_S)
                    finally:
                        await probe.close()
        except TimeoutError:
            return f"API servers have not read it within {READ_WITHIN_S:g} s: {reason}"
        return ""

    async def end_proofs(self, api: ApiClient) -> None:
        """Delete the objects of proofs.

        Raises:
            ClusterError: the API server refuses, or there was no answer.
        """
        for kind in (*BINDINGS, *POLICIES):
            try:
                await _delete(api, Named(kind, self._proof_name), {})
            except ClusterError as error:
                if error.status != _NOT_FOUND:
                    raise

    async def _write_proof(self, api: ApiClient, kind: str, token: str) -> None:
        lease = self._lease_path.rpartition("/")[2]
        rule = {
            "apiGroups": ["coordination.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["leases"],
            "resourceNames": [lease],
        }
        in_namespace = {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}}
        spec: dict[str, Any] = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": in_namespace},
        }
        binding: dict[str, Any] = {
            "policyName": self._proof_name,
            "matchResources": {"objectSelector": {"matchLabels": {_label(kind): token}}},
        }
        if kind == "ValidatingAdmissionPolicy":
            spec["validations"] = [{"expression": "false", "message": f"proof {token}"}]
            binding["validationActions"] = ["Deny"]
        else:
            patch = (
                f'[JSONPatch{{op: "add", path: "/metadata/annotations", value: {{"{PROOF}": "{token}"}}}}]'
            )
            spec["failurePolicy"] = "Ignore"
            spec["reinvocationPolicy"] = "Never"
            spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]
        for key, content in ((Named(kind, self._proof_name), spec), (self._binding(kind), binding)):
            present = await api.find(_path(*key))
            version = None if present is None else str(present["metadata"]["resourceVersion"])
            if present is not None and not self._owns(present):
                raise NotOwnedError(f"a {key} exists that the gateway does not own: delete it")
            await self._put(api, key, content, "", version)

    def _binding(self, kind: str) -> Named:
        return Named(BINDINGS[kind], self._proof_name)

    def _owns(self, document: Mapping[str, Any]) -> bool:
        annotations = document["metadata"].get("annotations") or {}
        return bool(annotations.get(INSTALLATION) == self.installation)

    async def _answer(self, api: ApiClient, kind: str, token: str) -> str:
        """Return why the answer to a dry run is not that of the policy with *token*, or an empty text."""
        body = orjson.dumps({"metadata": {"labels": {_label(kind): token}}})
        params = {"dryRun": "All", "fieldManager": FIELD_MANAGER}
        try:
            _, answer = await api.patch(self._lease_path, params, body, "application/merge-patch+json")
        except ClusterError as error:
            is_proof = kind == "ValidatingAdmissionPolicy" and token in str(error)
            return "" if is_proof else str(error)
        annotations = answer.get("metadata", {}).get("annotations") or {}
        if kind == "MutatingAdmissionPolicy" and annotations.get(PROOF) == token:
            return ""
        return f"the {kind} of the proof has no effect yet"


def _label(kind: str) -> str:
    return f"{PROOF}-{'mutating' if kind.startswith('Mutating') else 'validating'}"


def _path(kind: str, name: str = "") -> str:
    collection = f"/apis/{VERSION}/{plural_of(kind)}"
    return f"{collection}/{quote(name, safe='')}" if name else collection


async def _delete(api: ApiClient, key: Named, preconditions: Mapping[str, str]) -> None:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    await api.write("DELETE", _path(*key), options)


async def read_moved(settings: KubernetesSettings, installation: str) -> tuple[dict[Named, str], set[Named]]:
    """Return the digests of the policies that API servers have in force, and what registrations leave out.

    Raises:
        ClusterError: the cluster cannot be read.
    """
    api = await asyncio.to_thread(connect, settings)
    try:
        objects = PlacedObjects(settings, installation, "")
        announced = await objects.unregistered(api)
        return in_force(await objects.found(api)), announced
    finally:
        await api.close()


def policies_left_out(annotation: object, installation: str) -> set[Named]:
    """Return the policies that a registration with this *annotation* leaves out for *installation*."""
    try:
        content = orjson.loads(annotation) if isinstance(annotation, str) else {}
    except ValueError:
        return set()
    texts = content.get(installation) if isinstance(content, dict) else ()
    parts = [str(text).partition("/") for text in texts or ()]
    return {Named(kind, name) for kind, _, name in parts}


def annotation_of(policies: Sequence[Named], installation: str) -> str:
    """Return the annotation of a registration that leaves out *policies* of *installation*."""
    return orjson.dumps({installation: [f"{kind}/{name}" for kind, name in sorted(policies)]}).decode()
