"""Hostile answers of workers: the failurePolicy decides, and other webhooks are not affected."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.kit import SOME_PORT, all_well, configure, wait_until_ready
from tests.kit import (
    REVIEWS,
    GatewayProcess,
    WorkerProcess,
    pool_document,
    webhook_document,
)
from tests.load import Load

if TYPE_CHECKING:
    from collections.abc import Iterator

    import trustme

pytestmark = pytest.mark.process

MAX_ANSWERED_BYTES = 12 * 1024 * 1024
"""Size of an answer with the largest patch: 6 MiB and a third, because of base64."""
MAX_MEMORY_BYTES = 768 * 1024 * 1024
MAX_LOGGED_CHARS = 1_000_000
MAX_EXPLAINED_CHARS = 2000
REVIEWS_AFTER = 5
MANY_LABELS = 30_000

WORDS = {
    "empty_warnings": "RESOURCE_EXHAUSTED: an answer with more than 20000 warnings and annotations",
    "short_warnings": "RESOURCE_EXHAUSTED: an answer with more than 20000 warnings and annotations",
    "many_annotations": "RESOURCE_EXHAUSTED: an answer with more than 20000 warnings and annotations",
}
"""Answers that are refused, with the cause."""
PATCHES = {
    "empty_operations": "does not apply: has more than 500000 values",
    "null_operations": "does not apply: has more than 500000 values",
    "test_operations": "does not apply: has more than 500000 values",
    "values": "does not apply: has more than 500000 values",
    "nested_values": "does not apply: has more than 500000 values",
    "too_deep": "is not a JSON Patch: nested too deeply",
    "much_too_deep": "does not apply: has more than 500000 values",
    "copies": "copies add up to more than 3145728 bytes",
    "many_copies": "copies add up to more than 3145728 bytes",
    "inserts_at_the_head": "items of lists are shifted more than 100000000 times",
    "moves": "items of lists are shifted more than 100000000 times",
    "long_path": "does not apply: operation 0: cannot remove '/spec/xxx",
    "deep_path": "has more than 1024 parts",
    "huge_index": "is not an array index",
    "huge_number": "is not a JSON Patch: not JSON",
    "not_a_number": "is not a JSON Patch: not JSON",
    "too_large": "more than 3145728 over the request",
}
"""Patches that are refused, with a part of the message."""
DENIALS = {
    "long_denial": "\x00\x00",
    "long_reason": "denied without explanation",
    "causes": "no",
    "denied_with_warnings": "no",
}
CHANGES = ("many_labels",)
ODD = ("long_warning", "long_control_characters", "long_annotation", "bad_annotations")


def name_of(policy: str, failure_policy: str) -> str:
    return f"{policy}-{failure_policy}".lower().replace("_", "-")


def asking(phase: str, failure_policy: str, policy: str) -> str:
    """Return a configuration of one webhook for *policy*."""
    return webhook_document(
        phase,
        name_of(policy, failure_policy),
        "bad",
        {"answer": policy},
        failurePolicy=failure_policy,
        timeoutSeconds=25,
    )


class Attacked:
    """A gateway with an honest worker, which is called all the time, and a hostile one."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway

    def ask(self, phase: str, policy: str, failure_policy: str) -> dict[str, Any]:
        """Return the ``response`` to a review for *policy*, beside reviews of the honest worker."""
        path = f"/{phase}/{name_of(policy, failure_policy)}?timeout=30s"
        body = (REVIEWS / f"pod-create-{phase}.json").read_bytes()
        with Load(self.gateway, "/validate/good?timeout=20s", "pod-create-validate", connections=2) as load:
            load.wait_for(1)
            answer = self.gateway.post(path, body)
            load.wait_for(REVIEWS_AFTER)
        assert all_well(load.tally), load.tally
        assert len(answer) <= MAX_ANSWERED_BYTES
        response: dict[str, Any] = json.loads(answer)["response"]
        assert response["uid"] == json.loads(body)["request"]["uid"]
        return response

    def check(self) -> None:
        """Check that there was no internal error, and that memory and log stay small."""
        status = Path(f"/proc/{self.gateway.child.pid}/status").read_text()
        assert int(status.split("VmHWM:")[1].split()[0]) * 1024 < MAX_MEMORY_BYTES
        assert "Traceback" not in self.gateway.log
        assert "internal error" not in self.gateway.log
        assert len(self.gateway.log) < MAX_LOGGED_CHARS


@pytest.fixture(scope="module", params=["Stream", "Unary"])
def attacked(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    certificate: tuple[Path, Path],
    authority: trustme.CA,
) -> Iterator[Attacked]:
    """One attacked for all tests of a transport, so that damage shows in the next test."""
    with ExitStack() as processes:
        honest = WorkerProcess(SOME_PORT)
        processes.callback(honest.stop)
        hostile = WorkerProcess(SOME_PORT, *(["--no-stream"] if request.param == "Unary" else []))
        processes.callback(hostile.stop)
        folder = configure(
            tmp_path_factory.mktemp("hostile"),
            pool_document("pool", honest.target),
            webhook_document("validate", "good", "pool", {}),
            pool_document("bad", hostile.target, transport=request.param),
            *(
                asking(phase, failure_policy, policy)
                for failure_policy in ("Fail", "Ignore")
                for phase, policies in (
                    ("validate", [*WORDS, *DENIALS, *ODD]),
                    ("mutate", [*PATCHES, *CHANGES]),
                )
                for policy in policies
            ),
        )
        gateway = GatewayProcess(folder, certificate, authority)
        processes.callback(gateway.stop)
        wait_until_ready(gateway, 1)
        wait_until_ready(gateway, 1, "bad")
        yield Attacked(gateway)


@pytest.mark.parametrize("policy", WORDS | PATCHES)
def test_an_answer_above_the_limits_is_a_failure_of_its_webhook(attacked: Attacked, policy: str) -> None:
    phase = "validate" if policy in WORDS else "mutate"
    failed = attacked.ask(phase, policy, "Fail")
    assert not failed["allowed"]
    assert failed["status"]["code"] == 500
    message = failed["status"]["message"]
    assert message.startswith(f'failed calling webhook "h0.{name_of(policy, "Fail")}.test": ')
    assert (WORDS | PATCHES)[policy] in message
    assert len(message) < MAX_EXPLAINED_CHARS
    open_ = attacked.ask(phase, policy, "Ignore")
    assert open_["allowed"]
    assert any(key.startswith("failed-open.") for key in open_["auditAnnotations"])
    assert "patch" not in open_
    attacked.check()


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("policy", DENIALS)
def test_an_oversized_denial_still_denies(attacked: Attacked, policy: str, failure_policy: str) -> None:
    denied = attacked.ask("validate", policy, failure_policy)
    assert not denied["allowed"]
    assert denied["status"]["code"] == 403
    assert denied["status"]["message"].startswith(
        f"h0.{name_of(policy, failure_policy)}.test: {DENIALS[policy]}"
    )
    assert len(json.dumps(denied)) < 1_000_000
    assert len(denied["status"].get("details", {}).get("causes", [])) <= 1000
    attacked.check()


@pytest.mark.parametrize("policy", ODD)
def test_oversized_warnings_and_annotations_are_truncated_or_dropped(attacked: Attacked, policy: str) -> None:
    allowed = attacked.ask("validate", policy, "Fail")
    assert allowed["allowed"]
    assert len("".join(allowed.get("warnings", []))) <= 256
    assert allowed.get("auditAnnotations", {}) == {}
    attacked.check()


def test_a_patch_with_many_changes_is_reduced(attacked: Attacked) -> None:
    """The patch has more changes than the final patch may have: the gateway computes a smaller one."""
    response = attacked.ask("mutate", "many_labels", "Fail")
    assert response["allowed"]
    operations = json.loads(base64.b64decode(response["patch"]))
    assert len(operations) <= 2
    assert len(operations[0]["value"]) == MANY_LABELS
    attacked.check()
