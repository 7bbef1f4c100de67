"""ImageReviews of an API server's ImagePolicyWebhook, answered by validating webhooks.

An ImageReview becomes the AdmissionReview of a Pod with these images, annotations and this namespace, and
nothing else: its user, names and other fields are not known.

Source: k8s.io/api imagepolicy/v1alpha1 types.go.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.errors import MalformedReview
from gateway.base.text import described
from gateway.pure.core.review import V1
from gateway.pure.core.verdict import Failed
from gateway.server.serving.message import TEXT, Response

if TYPE_CHECKING:
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.decision import Decision
    from gateway.server.serving.message import Exchange

API_VERSION: Final = "imagepolicy.k8s.io/v1alpha1"
KIND: Final = "ImageReview"
MAX_BYTES: Final = 256 * 1024
"""The size of an ImageReview. It is read in one step."""
MAX_CONTAINERS: Final = 1000
"""Containers of an ImageReview. The Pod has a name for each of them."""
_PODS: Final = {"group": "", "version": "v1", "resource": "pods"}
_POD: Final = {"group": "", "version": "v1", "kind": "Pod"}
_EXPECTED: Final[dict[type, str]] = {dict: "a mapping", list: "a list", str: "a string"}


def admission_review(body: bytes) -> bytes:
    """Return the AdmissionReview for the ImageReview *body*.

    Raises:
        MalformedReview: *body* is not an ImageReview, or too long.
    """
    if len(body) > MAX_BYTES:
        raise MalformedReview(f"the ImageReview has {len(body)} bytes, expected at most {MAX_BYTES}")
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedReview(f"the body is not JSON: {error}") from None
    if not isinstance(review, dict):
        raise MalformedReview(f"found {described(review)}, expected a mapping")
    for name, expected in (("kind", KIND), ("apiVersion", API_VERSION)):
        if review.get(name) != expected:
            raise MalformedReview(f"{name}: found {described(review.get(name))}, expected {expected}")
    spec = _read(review.get("spec"), "spec", dict)
    containers = _read(spec.get("containers"), "spec.containers", list)
    if len(containers) > MAX_CONTAINERS:
        found = len(containers)
        raise MalformedReview(f"spec.containers: found {found} of them, expected at most {MAX_CONTAINERS}")
    images = []
    for number, container in enumerate(containers):
        path = f"spec.containers[{number}]"
        image = _read(_read(container, path, dict).get("image"), f"{path}.image", str)
        if not image:
            raise MalformedReview(f"{path}.image: is required, expected the name of an image")
        images.append({"name": f"image-{number}", "image": image})
    annotations = _read(spec.get("annotations"), "spec.annotations", dict)
    for value in annotations.values():
        if not isinstance(value, str):
            raise MalformedReview(f"spec.annotations: found {described(value)} as a value, expected a string")
    namespace = _read(spec.get("namespace"), "spec.namespace", str)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "annotations": annotations},
        "spec": {"containers": images},
    }
    request = {
        "uid": str(uuid.uuid4()),
        "kind": _POD,
        "resource": _PODS,
        "requestKind": _POD,
        "requestResource": _PODS,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": None,
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": V1, "request": request})


def _read(found: object, path: str, kind: type) -> Any:  # noqa: ANN401
    """Return what was *found* at *path*, and an empty value if that is absent or null."""
    if found is None:
        return kind()
    if not isinstance(found, kind):
        raise MalformedReview(f"{path}: found {described(found)}, expected {_EXPECTED[kind]}")
    return found


def respond(exchange: Exchange, answer: Answer) -> None:
    """Answer *exchange* with the ImageReview for *answer*, or with an error if failures alone refuse.

    The API server keeps verdicts, and has settings of its own for failures.
    """
    status = answer.decision.status
    verdicts = (outcome.verdict for outcome in answer.evaluation.outcomes if outcome.rejects)
    if status is not None and all(isinstance(each, Failed) for each in verdicts):
        # The API server shows its users the text of an answer of this type, and no other.
        exchange.reply(Response(500, status.message.encode(), content_type=TEXT))
    else:
        exchange.respond(200, _review_of(answer.decision))


def _review_of(decision: Decision) -> bytes:
    status: dict[str, object] = {"allowed": decision.allowed}
    if decision.status is not None and not decision.allowed:
        status["reason"] = decision.status.message
    if decision.audit_annotations:
        status["auditAnnotations"] = decision.audit_annotations
    return orjson.dumps(
        {"kind": KIND, "apiVersion": API_VERSION, "metadata": {}, "spec": {}, "status": status}
    )
