"""Golden reviews: a recorded AdmissionReview, a configuration and workers' answers in, the exact bytes out.

A vector is plain JSON. ``answers`` holds the answers of each webhook's worker, as the JSON form of a
ReviewResponse (``patch`` as operations) or of an Error. The first answer counts that has no ``objectHas``, or
whose ``objectHas`` points to a value in the worker's object.
"""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonpointer
import orjson
import pytest
from google.protobuf import json_format

from admission_gateway_worker.pb import worker_pb2
from gateway.config.merge.load import load
from gateway.engine.dispatch.verdicts import failed_status, status_name, verdict_of
from gateway.engine.paths import Paths
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.response import encode
from gateway.pure.core.review import decode
from tests.core.build import REVIEWS

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.call import Call
    from gateway.pure.core.verdict import Verdict

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.json"))


def test_the_vectors_are_there() -> None:
    assert {
        "allow",
        "two-denials",
        "fail-closed",
        "fail-open",
        "two-patches",
        "reinvocation",
        "dry-run-refused",
        "v1beta1",
        "patch-inapplicable-ignored",
        "warnings-and-annotations",
    } <= {path.stem for path in VECTORS}


def configuration(vector: dict[str, Any], folder: Path) -> Config:
    (folder / "configuration.json").write_text(
        "\n---\n".join(json.dumps(document) for document in vector["configuration"])
    )
    return load([folder])


def body(vector: dict[str, Any]) -> bytes:
    recorded: bytes = (REVIEWS / vector["review"]).read_bytes()
    return recorded.replace(b'"admission.k8s.io/v1"', b'"%s"' % vector["reviewVersion"].encode(), 1)


def answer(vector: dict[str, Any], call: Call) -> Verdict:
    shown = orjson.loads(call.payload.json)["object"]
    chosen = next(
        answer
        for answer in vector["answers"][call.invocation.webhook.name]
        if jsonpointer.resolve_pointer(shown, answer.get("objectHas", ""), None) is not None
        or "objectHas" not in answer
    )
    if "error" in chosen:
        return failed_status(status_name(chosen["error"]["code"]), chosen["error"]["message"])
    answer = dict(chosen["response"])
    patch = answer.pop("patch", None)
    response = json_format.ParseDict(answer, worker_pb2.ReviewResponse())
    if patch is not None:
        response.patch = orjson.dumps(patch)
    return verdict_of(worker_pb2.ReviewResponse.FromString(response.SerializeToString()))


def respond(vector: dict[str, Any], config: Config, order: tuple[int, ...]) -> bytes:
    """The gateway's answer when the calls that are out end in the given order."""
    request = decode(body(vector))
    namespace = config.namespaces.get(request.namespace)
    evaluation = Evaluation(Paths(config)[vector["path"]], request, namespace)
    out = list(evaluation.start())
    while out:
        call = out.pop(order[len(out) % len(order)] % len(out))
        out += evaluation.receive(call, answer(vector, call))
        for withdrawn in evaluation.take_withdrawn():
            out.remove(withdrawn)
    assert evaluation.done
    return encode(request.api_version, request.uid, decide(evaluation, vector["auditLevel"]))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_the_answer_is_the_expected_one_to_the_byte_in_any_order_of_arrival(
    path: Path, tmp_path: Path
) -> None:
    vector = json.loads(path.read_text())
    config = configuration(vector, tmp_path)
    for order in permutations(range(3)):
        assert respond(vector, config, order).decode() == vector["response"]


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_vector_is_whole(path: Path) -> None:
    """It has an explanation, and its readable patch equals that of the response."""
    vector = json.loads(path.read_text())
    assert vector["title"]
    assert vector["why"]
    response = json.loads(vector["response"])["response"]
    assert (
        json.loads(b64decode(response["patch"])) == vector["patch"]
        if vector["patch"]
        else "patch" not in response
    )
