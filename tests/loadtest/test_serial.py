"""Whether a difference from the serial run would be found, and that there is none."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from loadtest import serial
from loadtest.launch import BenchError
from loadtest.reviews import POD
from loadtest.serial import PATHS, differences, one_after_another, outcome
from loadtest.servers import Fleet, Started, fleet
from loadtest.worker import LABEL, SLOW_POLICIES
from tests.loadtest.review_server import ReviewServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENTS = 2
ANSWERS = 2
REVIEW = POD.read_bytes()
UID = orjson.loads(REVIEW)["request"]["uid"]


def answer(**response: Any) -> bytes:
    return orjson.dumps({"response": {"uid": UID, "allowed": True, **response}})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(POD, ["slow", "serial"], tmp_path_factory.mktemp("fleet")) as started:
        yield started


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial, "CLIENTS", CLIENTS)
    monkeypatch.setattr(serial, "ANSWERS", ANSWERS)


def test_an_outcome_is_the_patched_object_and_the_warnings() -> None:
    patch = b64encode(orjson.dumps([{"op": "replace", "path": "/metadata/name", "value": "x"}])).decode()
    left, warnings = outcome(REVIEW, answer(patch=patch, patchType="JSONPatch", warnings=["w"]))
    expected = orjson.loads(REVIEW)["request"]["object"]
    expected["metadata"]["name"] = "x"
    assert (left, warnings) == (expected, ["w"])


def test_a_review_that_is_refused_is_no_outcome() -> None:
    with pytest.raises(BenchError, match="not allowed"):
        outcome(REVIEW, answer(allowed=False))


@pytest.mark.slow
def test_asked_one_after_another_those_behind_the_third_see_its_label(running: Fleet) -> None:
    left, warnings = one_after_another(running.fronts["slow"].address, REVIEW)
    assert left["metadata"]["labels"][LABEL] == "yes"
    assert [LABEL in text for text in warnings] == [False, True]  # the same text is not given twice
    assert len(warnings) < SLOW_POLICIES


@pytest.mark.slow
def test_the_gateway_answers_as_the_serial_run(running: Fleet) -> None:
    assert differences(running, REVIEW) == 0.0


@pytest.mark.slow
def test_every_answer_that_differs_is_counted(running: Fleet, certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate, lambda _: answer(warnings=["made up"])) as other:
        address = other.url.removesuffix("/validate")
        fronts = {"slow": running.fronts["slow"], "serial": Started(0, address, ())}
        found = differences(Fleet(fronts, running.workers, {}), REVIEW)
    assert found == 1 + len(PATHS) * CLIENTS * ANSWERS
