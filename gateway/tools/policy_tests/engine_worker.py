"""A private copy of an engine's worker for a test of that engine, with the documents of the test.

The copy is started by the command of the pool that the configuration names for the engine, with another
folder of policies. What a rule makes of an object is in the audit annotations of its answer.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gateway.config.yaml.documents import GATEWAY_VERSION, Document
from gateway.config.yaml.fields import Problems
from gateway.pure.core.verdict import Denied, Failed
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.outcome import Outcome
    from gateway.tools.policy_tests.results import CaseResult

    Json = dict[str, Any]

STATUS: Final = "status"
"""The annotation with the status of the rule: ``pass``, ``fail``, ``skip`` or ``error``. It is absent if the
rule is not for the object. Of rules that are one policy it is ``RULE=STATUS`` of each, joined by commas."""
RULE: Final = "rule"
"""The annotation with the name of the rule, if autogen made it."""
_FOLDERS: Final = ("--policies", "-policies")
_CLUSTER: Final = ("--cluster", "-cluster")
_FILE: Final = Path("documents.yaml")


class RuleStatus(NamedTuple):
    """What one rule makes of an object."""

    rule: str
    status: str
    message: str


def command_of(config: Config, engine: str) -> tuple[str, ...]:
    """Return the command of the worker of *engine* without its policies; empty if there is none."""
    settings = getattr(config.gateway.policies.engines, engine)
    pool = None if settings is None else config.pools.get(settings.pool)
    command: list[str] = []
    arguments = iter(() if pool is None else pool.command)
    for one in arguments:
        name, equals, _ = one.partition("=")
        if name in _FOLDERS:
            if not equals:
                next(arguments, "")
        elif name not in _CLUSTER:
            command.append(one)
    return tuple(command)


def explained(results: Iterable[CaseResult], config: Config | None, engine: str) -> Iterator[CaseResult]:
    """Yield *results*; those that need the worker of *engine* also say how to have a copy of it started.

    *config* is that which ``test`` was given.
    """
    setting = f"policies.engines.{engine}"
    for one in results:
        needs = setting in one.not_supported
        yield replace(one, not_supported=f"{one.not_supported}; {_advice(config, engine)}") if needs else one


def _advice(config: Config | None, engine: str) -> str:
    setting, example = f"policies.engines.{engine}", f"command: [{engine}, --policies, policies]"
    copy = f"test starts a copy of the worker by spec.command of its WorkerPool, such as {example}"
    if config is None:
        return f"{copy}: give --config with such a pool and {setting}"
    settings = getattr(config.gateway.policies.engines, engine)
    if settings is None:
        return f"{copy}: the configuration of --config has no {setting}"
    return f"{copy}: the pool {settings.pool}, which {setting} names, has none"


@contextmanager
def private_worker(
    command: Sequence[str], engine: str, documents: Iterable[Mapping[str, object]]
) -> Iterator[list[Document]]:
    """Write *documents* to a folder, and return the settings for a worker of *engine* that reads it.

    There are no settings without a *command*. The folder is removed on exit.
    """
    if not command:
        yield []
        return
    with TemporaryDirectory(prefix="admission-gateway-") as folder:
        texts = [orjson.dumps(one, option=orjson.OPT_NON_STR_KEYS) for one in documents]
        (Path(folder) / _FILE).write_bytes(b"\n---\n".join(texts) + b"\n")
        settings: Json = {"policies": {"engines": {engine: {"pool": engine}}}}
        pool: Json = {
            "metadata": {"name": engine},
            "spec": {"command": [*command, "--policies", folder]},
        }
        kinds = {"GatewayConfiguration": settings, "WorkerPool": pool}
        yield [
            Document(
                _FILE,
                Problems(kind, folder=Path(folder)),
                {"apiVersion": GATEWAY_VERSION, "kind": kind, **content},
            )
            for kind, content in kinds.items()
        ]


def rule_statuses(outcome: Outcome) -> Iterator[RuleStatus]:
    """Yield what the rules behind *outcome*, which is of a worker, make of the object."""
    hook, verdict = outcome.invocation.webhook, outcome.verdict
    assert isinstance(hook.client, WorkerRef)
    name = hook.name.removeprefix(f"{hook.configuration}/")
    if isinstance(verdict, Failed):
        yield RuleStatus(name, "error", verdict.cause)
        return
    answer = outcome.worker_verdict
    annotations = {} if answer is None else dict(answer.audit_annotations)
    message = verdict.message if isinstance(verdict, Denied) else ""
    found = annotations.get(STATUS, "fail" if isinstance(verdict, Denied) else "")
    if "=" not in found:
        if found:
            yield RuleStatus(annotations.get(RULE, name), found, message)
        return
    for one in found.split(","):
        rule, _, status = one.rpartition("=")
        yield RuleStatus(rule, status, message if status in ("fail", "error") else "")
