"""Hostile objects: each review is answered in time, and none with HTTP 500."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.kit import SOME_PORT, all_well, configure, wait_until_ready
from tests.kit import GatewayProcess, WorkerProcess, pool_document, webhook_document
from tests.load import Load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trustme

pytestmark = pytest.mark.process

REQUEST_BYTES = 16 * 1024 * 1024
"""``maxRequestBytes``: the default would refuse the largest of these objects."""
TIMEOUT_S = 25
LABEL = {"op": "add", "path": "/metadata/labels/reviewed", "value": "yes"}


def review(obj: str, old: str = "null") -> bytes:
    """Return an AdmissionReview with *obj* as literal JSON."""
    request = {
        "uid": "hostile",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "default",
        "operation": "CREATE",
        "object": "OBJECT",
        "oldObject": "OLD",
        "dryRun": False,
    }
    document = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    # Written as the API server does, so that the gateway copies the request.
    text = json.dumps(document, separators=(",", ":"))
    return text.replace('"OBJECT"', obj).replace('"OLD"', old).encode(errors="surrogatepass")


def pod(spec: str = "{}", labels: str = '"wanted":"yes"') -> str:
    return f'{{"metadata":{{"name":"x","labels":{{{labels}}}}},"spec":{spec}}}'


def labels(count: int) -> str:
    return ",".join(f'"l{number}":""' for number in range(count))


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


CONTAINERS = [f'{{"name":"c{number}"}}' for number in range(100_000)]
ANSWERED = {
    "600,000 labels": pod(labels=labels(600_000)),
    "100,000 containers": pod(f'{{"containers":[{",".join(CONTAINERS)}]}}'),
    "a million empty lists": pod(f'{{"x":[{",".join(["[]"] * 1_000_000)}]}}'),
    "a million empty objects": pod(f'{{"x":[{",".join(["{}"] * 1_000_000)}]}}'),
    "100 levels": pod(nested(100)),
    "200 lists in lists": pod("[" * 200 + "1" + "]" * 200),
    "keys of a megabyte": pod(f'{{"{"k" * 1_000_000}":1,"{"j" * 1_000_000}":2}}'),
    "a text of 4 MiB": pod(f'"{"x" * 4_194_304}"'),
    "duplicate keys": pod('{"a":1,"a":2,"a":3}', '"wanted":"yes","wanted":"no"'),
    "100,000 duplicate keys": pod("{" + ",".join(['"a":1'] * 100_000) + "}"),
    "long fractions": pod(f'{{"a":0.1,"b":0.{"3" * 5000},"c":-0,"d":-0.0,"e":1e-400}}'),
    "whole numbers of 64 bits": pod('{"a":18446744073709551615,"b":-9223372036854775808}'),
    "whole numbers of 300 digits": pod(f'{{"a":{"9" * 300}}}'),
    "pairs of surrogates": pod('{"a":"\\ud83d\\ude00","\\ud83d\\ude00":1}'),
    "escaped control characters": pod('{"\\u0000":"\\u0000\\u001f"}'),
    "half of a pair": pod('{"a":"\\ud83d"}'),
    "half of a pair as it is": pod('{"a":"\ud83d"}'),
    "labels that are not texts": pod(labels='"wanted":{"a":[1]},"b":null,"c":1.5'),
}
"""Objects that can be decoded and encoded again."""

UNLABELLED = {
    "metadata that is none": '{"metadata":[],"spec":{}}',
    "labels that are none": '{"metadata":{"labels":["wanted"]}}',
}
TOO_DEEP = {"300 levels": pod(nested(300)), "1000 lists": pod("[" * 1000 + "]" * 1000)}
"""Objects that cannot be encoded again, so that no patch can be applied."""

REFUSED = {
    "100,000 levels": pod(nested(100_000)),
    "a million lists": pod("[" * 1_000_000),
    "NaN": pod('{"a":NaN}'),
    "infinity": pod('{"a":Infinity}'),
    "too large a number": pod('{"a":1e400}'),
    "5,000 digits": pod(f'{{"a":{"9" * 5000}}}'),
    "a leading zero": pod('{"a":01}'),
    "a control character": pod('{"a":"\x00"}'),
    "a comment": pod('{"a":1/* */}'),
    "no object": "[1]",
}
"""Invalid JSON, JSON beyond orjson's limits, or no object."""


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path], authority: trustme.CA
) -> Iterator[GatewayProcess]:
    selector = {"matchExpressions": [{"key": "wanted", "operator": "NotIn", "values": ["never"]}]}
    settings = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "limits": {"maxRequestBytes": REQUEST_BYTES},
    }
    with ExitStack() as processes:
        worker = WorkerProcess(SOME_PORT)
        processes.callback(worker.stop)
        hooks = {"objectSelector": selector, "timeoutSeconds": TIMEOUT_S}
        folder = configure(
            tmp_path_factory.mktemp("objects"),
            json.dumps(settings) + "\n---\n",
            pool_document("pool", worker.target),
            webhook_document("validate", "good", "pool", {}),
            webhook_document("validate", "check", "pool", {}, **hooks),
            webhook_document("mutate", "change", "pool", {"patch": [LABEL]}, {}, **hooks),
            webhook_document("mutate", "open", "pool", {"patch": [LABEL]}, failurePolicy="Ignore", **hooks),
        )
        started = GatewayProcess(folder, certificate, authority)
        processes.callback(started.stop)
        wait_until_ready(started, 1)
        yield started


def ask(gateway: GatewayProcess, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """Return status and body of the answer to a review, beside other reviews."""
    with Load(gateway, "/validate/good?timeout=25s", "pod-create-validate", connections=2) as load:
        load.wait_for(1)
        status, answer = gateway.exchange(f"{path}?timeout={TIMEOUT_S}s", body)
        load.wait_for(2)
    assert all_well(load.tally), load.tally
    assert "Traceback" not in gateway.log
    document: dict[str, Any] = json.loads(answer)
    return status, document


def response(answer: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    status, document = answer
    assert status == 200, document
    held: dict[str, Any] = document["response"]
    return held


@pytest.mark.parametrize("name", ANSWERED)
def test_an_unusual_object_is_patched(gateway: GatewayProcess, name: str) -> None:
    body = review(ANSWERED[name])
    assert len(body) <= REQUEST_BYTES
    patched = response(ask(gateway, "/mutate/change", body))
    assert patched["allowed"], patched["status"]
    assert json.loads(base64.b64decode(patched["patch"])) == [LABEL]


@pytest.mark.parametrize("name", UNLABELLED)
def test_a_patch_of_missing_labels_fails(gateway: GatewayProcess, name: str) -> None:
    failed = response(ask(gateway, "/mutate/change", review(UNLABELLED[name])))
    assert failed["status"]["code"] == 500
    assert "does not apply: operation 0: path" in failed["status"]["message"]


@pytest.mark.parametrize("name", ["change", "open"])
def test_a_review_above_the_message_limit_is_not_sent(gateway: GatewayProcess, name: str) -> None:
    """The review has 12 MiB: the gateway's raised limit allows it, and a worker's limit does not."""
    answered = response(ask(gateway, f"/mutate/{name}", review(pod(labels=labels(1_000_000)))))
    if name == "change":
        assert "RESOURCE_EXHAUSTED" in answered["status"]["message"]
    else:
        assert answered["allowed"]
        assert any(key.startswith("failed-open.") for key in answered["auditAnnotations"])


def test_an_object_without_metadata_matches_no_label_selector(gateway: GatewayProcess) -> None:
    allowed = response(ask(gateway, "/mutate/change", review("{}")))
    assert allowed["allowed"]
    assert "patch" not in allowed


@pytest.mark.parametrize("name", ANSWERED | UNLABELLED | TOO_DEEP)
def test_an_unusual_object_is_validated(gateway: GatewayProcess, name: str) -> None:
    body = review((ANSWERED | UNLABELLED | TOO_DEEP)[name])
    assert response(ask(gateway, "/validate/check", body)) == {"uid": "hostile", "allowed": True}


@pytest.mark.parametrize("name", TOO_DEEP)
def test_an_object_that_nests_too_deeply_cannot_be_patched(gateway: GatewayProcess, name: str) -> None:
    body = review(TOO_DEEP[name])
    failed = response(ask(gateway, "/mutate/change", body))
    assert failed["status"]["code"] == 500
    assert "nests too deeply" in failed["status"]["message"]
    open_ = response(ask(gateway, "/mutate/open", body))
    assert open_["allowed"]
    assert "patch" not in open_


@pytest.mark.parametrize("path", ["/mutate/change", "/validate/check"])
@pytest.mark.parametrize("name", REFUSED)
def test_invalid_json_is_a_bad_request(gateway: GatewayProcess, name: str, path: str) -> None:
    status, document = ask(gateway, path, review(REFUSED[name]))
    assert status == 400
    assert list(document) == ["error"]
    assert len(document["error"]) < 500
