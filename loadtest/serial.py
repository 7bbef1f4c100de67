"""Whether answers are those of the serial run: mutating webhooks asked at once against one after another.

Three things are compared. What a client gets that asks one webhook after another itself and shows each the
object as the one before left it, as kube-apiserver does. What a gateway answers whose webhooks may not be
called ahead of their turn (``sideEffects`` other than ``None``). And many answers, from the first on and
under load, of a gateway that asks ahead. The first has to agree in object and warnings, the others byte for
byte.
"""

from __future__ import annotations

import http.client
import ssl
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import jsonpatch
import orjson

from loadtest.launch import BenchError
from loadtest.worker import SLOW_POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.servers import Fleet

PATHS: Final = ("/mutate/told", "/mutate/third-changes", "/mutate/sleeps-8")
STEPS: Final = tuple(f"/mutate/step-{number}" for number in range(SLOW_POLICIES))
"""The webhooks of the first of ``PATHS``, each alone."""
CLIENTS: Final = 8
ANSWERS: Final = 25
"""Compared for each client and path."""
_TIMEOUT_S: Final = 15.0

Outcome = tuple[Any, list[str]]
"""An object as it was left, and the warnings on the way."""


class Client:
    """One connection, which trusts whoever answers."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, context=context, timeout=_TIMEOUT_S
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def post(self, path: str, review: bytes) -> bytes:
        """Return the body that answers *review* at *path*.

        Raises:
            BenchError: the status is not 200, or there was no answer.
        """
        try:
            self._connection.request("POST", path, review, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(f"{path}: {error}") from None
        if response.status != 200:
            raise BenchError(f"{path}: {response.status} {body[:200].decode(errors='replace')}")
        return body


def outcome(review: bytes, answer: bytes) -> Outcome:
    """Return what *answer* makes of the object in *review*.

    Raises:
        BenchError: it does not allow it.
    """
    document = orjson.loads(review)["request"]["object"]
    response = orjson.loads(answer)["response"]
    if not response["allowed"]:
        raise BenchError(f"not allowed: {answer[:300].decode(errors='replace')}")
    if "patch" in response:
        document = jsonpatch.apply_patch(document, orjson.loads(b64decode(response["patch"])))
    return document, response.get("warnings", [])


def one_after_another(address: str, review: bytes, paths: Sequence[str] = STEPS) -> Outcome:
    """Return what the webhooks at *paths* make of *review*, each asked with what the last one left."""
    warnings: list[str] = []
    with Client(address) as client:
        for path in paths:
            left, said = outcome(review, client.post(path, review))
            warnings += [text for text in said if text not in warnings]
            document = orjson.loads(review)
            document["request"]["object"] = left
            review = orjson.dumps(document)
    return orjson.loads(review)["request"]["object"], warnings


def differences(running: Fleet, review: bytes) -> float:
    """Return how many answers of the front ends ``slow`` and ``serial`` differ from the serial run.

    Raises:
        BenchError: a review was refused or not answered.
    """
    asked_ahead, asked_in_turn = running.fronts["slow"].address, running.fronts["serial"].address
    differing = 0
    for path in PATHS:
        with Client(asked_in_turn) as client:
            expected = client.post(path, review)
        if path == PATHS[0]:
            differing += outcome(review, expected) != one_after_another(asked_ahead, review)
        with ThreadPoolExecutor(CLIENTS) as threads:
            answers = [threads.submit(_ask, asked_ahead, path, review) for _ in range(CLIENTS)]
            differing += sum(body != expected for found in answers for body in found.result())
    return float(differing)


def _ask(address: str, path: str, review: bytes) -> list[bytes]:
    with Client(address) as client:
        return [client.post(path, review) for _ in range(ANSWERS)]
