"""Whether a server applies a set of policies: denials, and the changed Pod."""

from __future__ import annotations

import base64
import http.client
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from admission_gateway_worker.json_patch.patch import apply_patch, parse_patch
from loadtest.http_client import client_tls
from loadtest.policies import MUTATING, MUTATING_DOCUMENTS, SETS, labelled, mutated, violating
from loadtest.policies.mutations import MUTATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_TIMEOUT_S: Final = 20.0


def problem(url: str, name: str, review: bytes) -> str:
    """Return how the answers of *url* differ from those of the policies of the set *name*; empty if nowhere.

    A set of validating policies must also allow what only the policies of other sets deny.

    Args:
        url: ``https://HOST:PORT/PATH``.
        name: One of ``SETS``, or ``MUTATING_DOCUMENTS``.
        review: The AdmissionReview of a Pod.

    Raises:
        OSError: there is no answer.
        ValueError: an answer is not an AdmissionReview for this request.
    """
    document: dict[str, Any] = orjson.loads(labelled(review))
    pod = document["request"]["object"]
    response = _answer(url, document)
    if not response["allowed"]:
        return f"denied a Pod that no policy denies: {response.get('status')}"
    if name in (MUTATING, MUTATING_DOCUMENTS):
        results = [one.result for one in MUTATIONS.values()]
        expected = [mutated(pod)] if name == MUTATING else [pod, *results]
        patch = parse_patch(base64.b64decode(response.get("patch") or b""))
        found = apply_patch(pod, patch)
        return next(filter(None, (lacking(found, each) for each in expected)), "")
    for policy in SETS["v10"]:
        changed = {**document, "request": {**document["request"], "object": violating(pod, policy)}}
        is_expected = policy not in SETS[name]
        if _answer(url, changed)["allowed"] is not is_expected:
            return f"{'denied' if is_expected else 'allowed'} what only {policy} denies"
    return ""


def lacking(found: object, expected: object, path: str = "") -> str:
    """Return the path at which *found* lacks something of *expected*; empty if it has all of it.

    Objects may have more members than expected; arrays must have as many items.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        pairs = [(key, found.get(key), value) for key, value in expected.items()]
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = [(str(at), *pair) for at, pair in enumerate(zip(found, expected, strict=True))]
    else:
        return "" if found == expected else f"{path or '/'}: expected {expected!r}, found {found!r}"[:300]
    return next(filter(None, (lacking(mine, wanted, f"{path}/{key}") for key, mine, wanted in pairs)), "")


def _answer(url: str, document: Mapping[str, Any]) -> dict[str, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(parts.netloc, context=client_tls(), timeout=ANSWER_TIMEOUT_S)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, orjson.dumps(document), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    try:
        response: dict[str, Any] = orjson.loads(text)["response"]
        is_right = answer.status == 200 and response["uid"] == document["request"]["uid"]
    except (ValueError, KeyError, TypeError):
        is_right = False
    if not is_right:
        raise ValueError(f"HTTP {answer.status}: {text[:300]!r}")
    return response
