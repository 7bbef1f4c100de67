"""JSON that a client of the API server can have sent to webhooks: duplicate keys, invalid Unicode, depth.

The gateway accepts all of it. Workers get the bytes of the API server, with U+FFFD for invalid Unicode.
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.objects import GROUP, config_map, widget, within
from tests.e2e.setups import BehindGateway, Hook, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

VALUES: Final[dict[str, bytes]] = {
    "duplicate": b'{"a":1,"a":2}',
    "beyond-double": b'{"a":1e400}',
    "surrogate": b'{"a":"x\\ud800y"}',
    "no-utf-8": b'{"a":"x\xffy"}',
    "deep": b'{"a":' + b"[" * 9_900 + b"]" * 9_900 + b"}",
    "too-deep": b'{"a":' + b"[" * 12_000 + b"]" * 12_000 + b"}",
}
REVISION: Final[dict[str, Any]] = {
    "apiVersion": "apps/v1",
    "kind": "ControllerRevision",
    "metadata": {"name": "revision"},
    "revision": 1,
    "data": "@",
}
CALLER: Final = {"Impersonate-User": "raw", "Impersonate-Group": "system:masters"}


@pytest.fixture(scope="module")
def raw(cluster: Cluster, widgets: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster behind a gateway whose worker denies a user, with the request as the worker received it."""
    rules = (
        rule("configmaps"),
        rule("controllerrevisions", group="apps"),
        rule("widgets", group=GROUP),
    )
    condition = {"name": "raw", "expression": "request.userInfo.username == 'raw'"}
    hook = Hook("validate", "raw.raw.test", {"raw": True}, rules, fields={"matchConditions": [condition]})
    with BehindGateway(cluster, tmp_path_factory.mktemp("raw"), [hook], "raw"):
        yield cluster


def send(
    cluster: Cluster, namespace: str, path: str, document: dict[str, Any], value: bytes
) -> Answer | None:
    """Create *document* with *value* in place of ``@``; None if the API server gives no answer."""
    text = json.dumps(document).encode().replace(b'"@"', value)
    try:
        return cluster.api.request("POST", path.format(namespace=namespace), text, **CALLER)
    except http.client.RemoteDisconnected:
        return None


def shown(answer: Answer | None) -> bytes:
    """Return the request that the worker received."""
    assert answer is not None
    assert answer.message.startswith('admission webhook "'), answer
    return base64.b64decode(answer.message.rpartition(" ")[2])


def test_raw_fields_reach_workers_unchanged(raw: Cluster, namespace: str) -> None:
    path = within("controllerrevisions", "apps/v1")
    found = {name: send(raw, namespace, path, REVISION, value) for name, value in VALUES.items()}
    assert b'"data":{"a":1,"a":2}' in shown(found["duplicate"])
    assert b'"data":{"a":"x\\ufffdy"}' in shown(found["surrogate"])
    assert '"data":{"a":"x\ufffdy"}'.encode() in shown(found["no-utf-8"])
    assert b'"data":%b' % VALUES["deep"] in shown(found["deep"])
    # The API server itself fails, before it calls webhooks.
    assert found["beyond-double"] is None
    too_deep = found["too-deep"]
    assert too_deep is not None
    assert too_deep.status == 400


def test_custom_resources_are_deep_and_otherwise_canonical(raw: Cluster, namespace: str) -> None:
    document = widget()
    document["spec"] = "@"
    path = within("widgets", f"{GROUP}/v1")
    found = {name: send(raw, namespace, path, document, value) for name, value in VALUES.items()}
    assert b'"spec":{"a":2}' in shown(found["duplicate"])
    assert '"spec":{"a":"x\ufffdy"}'.encode() in shown(found["surrogate"])
    assert '"spec":{"a":"x\ufffdy"}'.encode() in shown(found["no-utf-8"])
    assert b'"spec":%b' % VALUES["deep"] in shown(found["deep"])
    for refused in (found["beyond-double"], found["too-deep"]):
        assert refused is not None
        assert refused.status == 400


def test_decoded_fields_reach_webhooks_without_duplicates(raw: Cluster, namespace: str) -> None:
    for document, path in (
        (config_map(), within("configmaps")),
        (widget(), within("widgets", f"{GROUP}/v1")),
        ({**REVISION, "data": {}}, within("controllerrevisions", "apps/v1")),
    ):
        twice = copy.deepcopy(document)
        twice["metadata"] = "@"
        value = b'{"name":"a","name":"b","labels":{"x":"1","x":"2"},"labels":{"y":"1","y":"2"}}'
        request = shown(send(raw, namespace, path, twice, value))

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            assert len(dict(pairs)) == len(pairs), pairs
            return dict(pairs)

        held = json.loads(request, object_pairs_hook=unique)["object"]
        assert held["metadata"]["name"] == "b"
        assert held["metadata"]["labels"]["y"] == "2"
