"""A pool with workers in different languages: their answers mean the same."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from admission_gateway_worker.json_patch.patch import apply_patch
from tests.faults.kit import calls, configure, wait_until_ready
from tests.languages.kit import FAILING, MUTATING, Question, configuration, questions
from tests.languages.toolchains import PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.kit import GatewayProcess, StartGateway
    from tests.languages.kit import Sample

TRANSPORTS = ("Stream", "Unary", "Auto")
TIMES = 3
"""Rounds of reviews for each worker of a mixed pool, because workers are chosen at random."""
AT_A_TIME = 6
"""Concurrent reviews, so that calls share batches."""
WAITS = ("sleeps", "sleeps-open")
"""Reviews that are answered after a second."""


def answers(gateway: GatewayProcess, questions: Iterable[Question]) -> dict[Question, bytes]:
    """Return the bytes of the answer to each review; some are sent concurrently."""
    # The slow reviews come first.
    rest = sorted(questions, key=lambda question: question.name not in WAITS)
    found: dict[Question, bytes] = {}

    def keep_asking() -> None:
        with closing(gateway.connect()) as connection, suppress(IndexError):
            while True:
                question = rest.pop(0)
                found[question] = gateway.post(question.path, question.body, connection)

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for done in [threads.submit(keep_asking) for _ in range(AT_A_TIME)]:
            done.result()
    return found


def differences(expected: dict[Question, bytes], found: dict[Question, bytes]) -> list[str]:
    """Describe the answers that differ from *expected*, the first few in full."""
    assert expected.keys() >= found.keys()
    others = [
        question
        for question in found
        if meaning(question, found[question]) != meaning(question, expected[question])
    ]
    shown = [
        f"{question.path} {question.name}:\n{expected[question].decode()}\n{found[question].decode()}"
        for question in others[:5]
    ]
    return [*shown, f"... {len(others)} in all"] if others else []


def meaning(question: Question, answer: bytes) -> dict[str, Any]:
    """Return *answer* with what its patches lead to, in place of the patches."""
    review: dict[str, Any] = json.loads(answer)
    response, before = review["response"], json.loads(question.body)["request"].get("object")
    if "patch" in response:
        response["patch"] = apply_patch(before, json.loads(base64.b64decode(response["patch"])))
    annotations = response.get("auditAnnotations", {})
    # Each patch is of the object that the ones before it leave.
    for key in sorted(
        filter(_PATCH.fullmatch, annotations), key=lambda key: list(map(int, re.findall("[0-9]+", key)))
    ):
        quoted = json.loads(annotations[key])
        before = apply_patch(before, quoted["patch"])
        annotations[key] = {**quoted, "patch": before}
    return review


_PATCH: Final = re.compile(r"patch\.round_[0-9]+_index_[0-9]+")


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[Question, bytes]]:
    """The answers of Python's worker alone, by transport; the first test fills it."""
    return {}


@pytest.fixture
def reference(
    tmp_path_factory: pytest.TempPathFactory,
    samples: dict[str, Sample],
    start_gateway: StartGateway,
    expected: dict[str, dict[Question, bytes]],
    transport: str,
) -> dict[Question, bytes]:
    """Return the answers of a pool that has Python's worker alone."""
    if transport not in expected:
        folder = configure(
            tmp_path_factory.mktemp("c"), configuration(samples[PYTHON.name].target, transport=transport)
        )
        gateway = start_gateway(folder)
        wait_until_ready(gateway, 1)
        expected[transport] = answers(gateway, questions())
    return expected[transport]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_reference_answers_match_the_vectors(reference: dict[Question, bytes]) -> None:
    """The compared answers contain patches, warnings, annotations, causes, and failures."""
    seen: Counter[str] = Counter()
    for question, answer in reference.items():
        if question.vector is None:
            continue
        response = json.loads(answer)["response"]
        outcome = question.vector["outcome"]
        if "error" in outcome:
            message = response["status"]["message"]
            assert (
                message == f'failed calling webhook "h0.fails.test": INTERNAL: {outcome["error"]["message"]}'
            )
            seen["error"] += 1
            continue
        seen.update(outcome["response"].keys())
        # The gateway drops warnings that no HTTP header can carry.
        wanted = outcome["response"]
        if "warnings" in wanted:
            wanted = {**wanted, "warnings": [text for text in wanted["warnings"] if "\x7f" not in text]}
        assert outcome_of(response, question.path.rpartition("/")[2]) == wanted, question.name
    assert {"error", "patch", "status", "warnings", "auditAnnotations"} <= seen.keys()


def outcome_of(response: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the worker's outcome in *response* of the configuration *name*, in the form of a vector."""
    webhook = f"h0.{name}.test"
    annotations = response.get("auditAnnotations", {})
    outcome: dict[str, Any] = {"allowed": response["allowed"]}
    if "status" in response:
        status = response["status"]
        details = status.get("details", {})
        outcome["status"] = {
            **{field: value for field, value in details.items() if field != "causes"},
            "code": status["code"],
            "reason": "" if status.get("reason") == "Forbidden" else status.get("reason", ""),
            "message": status["message"].removeprefix(f"{webhook}: "),
            "causes": [
                {"reason": "", "message": "", "field": ""}
                | cause
                | {"message": cause.get("message", "").removeprefix(f"{webhook}: ")}
                for cause in details.get("causes", ())
            ],
        }
    if name in MUTATING:
        mutated = json.loads(annotations["mutation.round_0_index_0"])["mutated"]
        assert mutated is ("patch" in response)
        quoted = annotations.get("patch.round_0_index_0")
        if quoted is not None:
            outcome["patch"] = json.loads(quoted)["patch"]
            assert json.loads(base64.b64decode(response["patch"]))
    if "warnings" in response:
        outcome["warnings"] = response["warnings"]
    own = {key.removeprefix(f"{webhook}."): text for key, text in annotations.items() if webhook in key}
    if own:
        outcome["auditAnnotations"] = own
    return outcome


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_language_alone_answers_as_python_does(
    tmp_path_factory: pytest.TempPathFactory,
    samples: dict[str, Sample],
    start_gateway: StartGateway,
    reference: dict[Question, bytes],
    transport: str,
) -> None:
    wrong = {}
    for name, sample in samples.items():
        folder = configure(tmp_path_factory.mktemp("c"), configuration(sample.target, transport=transport))
        gateway = start_gateway(folder)
        wait_until_ready(gateway, 1)
        others = differences(reference, answers(gateway, reference))
        if others:
            wrong[name] = others
        # There is no other endpoint that could have answered.
        assert calls(gateway, sample, code="OK") > len(reference)
        gateway.stop()
    assert not wrong, "\n".join(f"{name}:\n" + "\n".join(others) for name, others in wrong.items())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_languages_in_one_pool_answer_as_python_does(
    tmp_path_factory: pytest.TempPathFactory,
    samples: dict[str, Sample],
    start_gateway: StartGateway,
    reference: dict[Question, bytes],
    transport: str,
) -> None:
    targets = [sample.target for sample in samples.values()]
    folder = configure(tmp_path_factory.mktemp("c"), configuration(*targets, transport=transport))
    gateway = start_gateway(folder)
    wait_until_ready(gateway, len(targets))
    for turn in range(TIMES * len(samples)):
        questions = [question for question in reference if turn == 0 or question.name not in WAITS]
        assert not differences(reference, answers(gateway, questions))
    answered = {name: calls(gateway, sample, code="OK") for name, sample in samples.items()}
    # How many depends on how fast each is: the pool prefers workers with fewer calls in flight.
    assert all(answered.values()), answered
    # CANCELLED are speculative calls whose object was changed by an earlier policy.
    codes = ("OK", "INTERNAL", "NOT_FOUND", "DEADLINE_EXCEEDED", "CANCELLED")
    for sample in samples.values():
        assert calls(gateway, sample) == sum(calls(gateway, sample, code=code) for code in codes)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_failure_policy_decides_in_every_language(reference: dict[Question, bytes]) -> None:
    """The answers of the other languages are the same, see above."""
    texts = {
        "fails": "INTERNAL: this policy always fails (review ",
        "sleeps": "DEADLINE_EXCEEDED: no answer within 1s",
        "unknown": 'NOT_FOUND: policy "no-such-policy" is not served here; served are: always-pull-images, ',
    }
    by_name = {question.name: json.loads(answer)["response"] for question, answer in reference.items()}
    assert texts.keys() | {f"{name}-open" for name in texts} == FAILING.keys()
    for name, text in texts.items():
        closed, opened = by_name[name], by_name[f"{name}-open"]
        assert closed["allowed"] is False
        assert closed["status"]["message"].startswith(f'failed calling webhook "h0.{name}.test": {text}')
        assert opened["allowed"] is True
        assert opened["auditAnnotations"] == {"failed-open.round_0_index_0": f"h0.{name}-open.test"}
