"""Workers that never answer: the gateway answers before the API server's timeout.

The API server waits for an entry's timeoutSeconds, for its client's ``?timeout=``, and for 34 seconds at
most. The first to time out writes the message for the user. The gateway names the webhook and its timeout;
the API server writes "context deadline exceeded" and ignores the webhook's failurePolicy.

Requests that take long are sent at once, and each test looks at the answer of one.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.objects import config_map, within
from tests.e2e.setups import BehindGateway, Hook, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

CONFIG_MAPS: Final = within("configmaps")
ENTRY_S: Final = 20
"""The API server's timeout for the gateway in the first set-up. The gateway keeps at most a fifth for the way
back: so long may a process be stalled."""
PHASES: Final = ("mutate", "validate")


class Bounded(BehindGateway):
    """A gateway whose entries have a given timeoutSeconds."""

    def __init__(
        self, cluster: Cluster, folder: Path, hooks: list[Hook], entry_s: int, name: str, **gateway: str
    ) -> None:
        super().__init__(cluster, folder, hooks, name, gateway=gateway)
        self._entry_s = entry_s

    def manifests(self) -> list[dict[str, Any]]:
        documents = super().manifests()
        for document in documents:
            for entry in document["webhooks"]:
                entry["timeoutSeconds"] = self._entry_s
        return documents

    def create_all(self, namespace: str, requests: Mapping[str, str]) -> dict[str, Answer]:
        """Return the answers to *requests*, sent at once: names of ConfigMaps, and the query of each.

        A ConfigMap's label is its name up to the first dot.
        """

        def create(name: str) -> Answer:
            path = CONFIG_MAPS.format(namespace=namespace) + requests[name]
            try:
                return self.cluster.api.create(path, config_map(name, {"bound": name.partition(".")[0]}))
            finally:
                self.cluster.api.close()

        with ThreadPoolExecutor(len(requests)) as threads:
            return dict(zip(requests, threads.map(create, requests), strict=True))


def hanging(phase: Any, name: str, label: str, policy: str, timeout_s: int, **fields: Any) -> Hook:
    """Return a webhook that never answers, called for objects with *label*."""
    fields |= {
        "failurePolicy": policy,
        "timeoutSeconds": timeout_s,
        "objectSelector": {"matchLabels": {"bound": label}},
    }
    return Hook(phase, f"{name}.bounds.test", {"hang": True}, (rule("configmaps", "CREATE"),), fields=fields)


def refused(answer: Answer, *lines: str) -> None:
    """Assert that the gateway refused with a message that matches *lines*."""
    assert (answer.status, answer.document["reason"]) == (500, "InternalError"), answer
    message = rf'admission webhook "[^"]+" denied the request: {chr(10).join(lines)}'
    assert re.fullmatch(message, answer.message), answer.message


def failure(name: str, within: str) -> str:
    return f'failed calling webhook "{name}.bounds.test": DEADLINE_EXCEEDED: no answer within {within}'


# -- an entry's timeoutSeconds, and the client's timeout ------------------------------------------

SERIAL: Final = {"sideEffects": "NoneOnDryRun"}
"""Webhooks that the gateway never calls before their turn."""
REQUESTS: Final = {
    **{
        f"{phase}-{policy}-{timeout_s}{client}": query
        for phase in PHASES
        for policy in ("fail", "ignore")
        for timeout_s, client, query in ((30, "", ""), (30, ".client", "?timeout=19s"))
    },
    **dict.fromkeys(("serial-fail", "serial-ignore", "parallel", "many"), ""),
}


def hooks_in_one_entry() -> Iterator[Hook]:
    for phase in PHASES:
        for policy in ("Fail", "Ignore"):
            for timeout_s in (1, 2, 30):
                label = f"{phase}-{policy.lower()}-{timeout_s}"
                yield hanging(phase, label, label, policy, timeout_s)
    for number in range(3):
        yield hanging("mutate", f"s{number}", "serial-ignore", "Ignore", 10, **SERIAL)
        yield hanging(
            "mutate", f"t{number}", "serial-fail", ("Ignore", "Ignore", "Fail")[number], 10, **SERIAL
        )
        yield hanging("mutate", f"p{number}", "parallel", "Ignore", 10)
        yield hanging("validate", f"m{number}", "many", "Fail", number + 1)


@pytest.fixture(scope="module")
def bounded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bounded]:
    hooks = list(hooks_in_one_entry())
    folder = tmp_path_factory.mktemp("bounded")
    setup = Bounded(cluster, folder, hooks, ENTRY_S, "bounded", deadlineReserve="4s")
    with setup:
        yield setup


@pytest.fixture(scope="module")
def answers(bounded: Bounded) -> dict[str, Answer]:
    return bounded.create_all("default", REQUESTS)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("timeout_s", [1, 2])
def test_a_webhook_that_hangs_fails_after_its_timeout(
    bounded: Bounded, namespace: str, phase: str, timeout_s: int
) -> None:
    names = [f"{phase}-{policy}-{timeout_s}" for policy in ("fail", "ignore")]
    denied, allowed = bounded.create_all(namespace, dict.fromkeys(names, "")).values()
    refused(denied, failure(names[0], f"{timeout_s}s"))
    assert allowed.status == 201


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("client", "given"), [("", "16s"), (".client", "(14.4|13.6|12.8|12|11.2|10.4)s")])
def test_a_webhook_with_a_timeout_above_that_of_the_request_fails_before_the_api_server_gives_up(
    answers: dict[str, Answer], phase: str, client: str, given: str
) -> None:
    """What is left of the client's time is announced rounded up, so the gateway takes off one second more.

    How much is left depends on how long the API server had the request before.
    """
    name = f"{phase}-fail-30"
    refused(answers[name + client], failure(name, given))
    assert answers[f"{phase}-ignore-30{client}"].status == 201


def test_webhooks_that_hang_one_after_another_fail_before_the_api_server_gives_up(
    answers: dict[str, Answer],
) -> None:
    refused(answers["serial-fail"], failure("t2", "10s"))
    assert answers["serial-ignore"].status == 201


def test_webhooks_that_hang_in_parallel_take_no_longer_than_one(answers: dict[str, Answer]) -> None:
    """Three serial calls of ten seconds each would exceed the entry's twenty."""
    assert answers["parallel"].status == 201
    refused(answers["many"], failure("m0", "1s"), failure("m1", "2s"), failure("m2", "3s"))


# -- thirty seconds, the most an entry can have, and thirty-four, the most a request can ----------

LONG: Final = {
    "mutate": "",
    "validate": "",
    "both": "",
    "fraction": "?timeout=28500ms",
    "short.fraction": "?timeout=19500ms",
    "open": "?timeout=28500ms",
}


def long_hooks() -> Iterator[Hook]:
    for phase in PHASES:
        yield hanging(phase, phase, phase, "Fail", 30)
        for label in ("fraction", "short"):
            yield hanging(phase, f"{phase}-{label}", label, "Fail", 30)
    yield hanging("mutate", "open", "open", "Ignore", 30)
    yield hanging("mutate", "both-mutate", "both", "Ignore", 30)
    yield hanging("validate", "both-validate", "both", "Fail", 30)


def test_the_gateway_answers_before_the_thirty_four_seconds_of_the_api_server_are_over(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Although the API server rounds up the remaining time. The reserve is for stalled processes only."""
    setup = Bounded(cluster, tmp_path, list(long_hooks()), 30, "long", deadlineReserve="5s")
    with setup:
        answers = setup.create_all(namespace, LONG)
    for phase in PHASES:
        refused(answers[phase], failure(phase, "25s"))
    # Nine seconds are left after the mutating phase, or fewer: as many as the API server has announced.
    refused(answers["both"], failure("both-validate", "(6.4|5.6|4.8|4|3.2)s"))
    refused(answers["fraction"], failure("mutate-fraction", "(23|22|21|20|19.2|18.4)s"))
    refused(answers["short.fraction"], failure("mutate-short", "(15.2|14.4|13.6|12.8|12|11.2)s"))
    assert answers["open"].status == 201
