"""A configuration that all reachable workers reject does not replace one in force."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.rotating import command_pool, write_whole
from tests.kit import WORKER, pool_document, webhook_document
from tests.worker.server import scripted_worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kit import Answering, StartGateway
    from tests.worker.server import ScriptedWorker

RELOADED = "admission_gateway_config_last_reload_successful"
DENY = '{"deny": {"message": "as before"}}'
SCHEMA = {"properties": {"max": {"type": "integer"}}}
REFUSED = r"ERROR configuration refused, the one in force stays: .*/c\.yaml: document \d: .* \"v\": "


def declaring(stage: Stage, declared: Path | None) -> ScriptedWorker:
    """Start a worker whose policies the file *declared* lists; without it, one that does not list them."""
    return stage.enter(scripted_worker("127.0.0.1:0", declared=declared))


class Setup:
    """A folder with the configuration, and a worker whose policies a file lists; *start* starts it."""

    def __init__(self, folder: Path, start: Callable[[Path], ScriptedWorker]) -> None:
        self.config = folder / "config"
        self.config.mkdir()
        self.declared = folder / "policies.json"
        self.declare({DENY: {"schema": SCHEMA}})
        self.worker = start(self.declared)
        self.configure(client(DENY, {"max": 3}))

    def declare(self, policies: dict[str, Any], file: Path | None = None) -> None:
        (file or self.declared).write_text(json.dumps(policies))

    def configure(self, *hooks: dict[str, Any], targets: tuple[str, ...] = ()) -> None:
        document = webhook_document("validate", "v", "pool", *({"webhook": hook} for hook in hooks))
        pool = pool_document("pool", *(targets or (self.worker.target,)))
        write_whole(self.config / "c.yaml", pool + document)


@pytest.fixture
def setup(tmp_path: Path, stage: Stage) -> Setup:
    return Setup(tmp_path, partial(declaring, stage))


def client(policy: str, parameters: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    worker = {"pool": "pool", "policy": policy}
    return {
        "clientConfig": {"worker": worker if parameters is None else {**worker, "parameters": parameters}},
        **fields,
    }


def is_as_before(gateway: Answering) -> bool:
    response = gateway.review("/validate", "pod-create-mutate")
    return bool(response["status"]["message"] == "h0.v.test: as before")


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (client("{}"), 'worker.policy: found "{}", which no worker of pool "pool" serves'),
        (client(DENY, {"max": "3"}), 'worker.parameters.max: found the string "3", expected a value of type'),
        (client(DENY, {"max": 4}), "worker.parameters: no number"),
    ],
    ids=["policy", "schema", "prepare"],
)
def test_it_is_refused_and_the_one_in_force_stays(
    setup: Setup, stage: Stage, hook: dict[str, Any], problem: str
) -> None:
    gateway = stage.start_gateway(setup.config)
    assert is_as_before(gateway)
    assert gateway.metric(RELOADED) == 1
    if "no number" in problem:
        setup.declare({DENY: {"schema": SCHEMA, "problem": "no number"}})
    setup.configure(hook)
    gateway.expect(REFUSED + r"webhooks\[0\]\.clientConfig\." + re.escape(problem))
    assert gateway.metric(RELOADED) == 0
    assert re.search(
        r"warning: configuration refused.*" + re.escape(problem), gateway.admin("/readyz?verbose")[1]
    )
    assert is_as_before(gateway)
    # Once the workers accept it, it comes into force without another change.
    setup.declare({DENY: {"schema": {}}, "{}": {}})
    stage.eventually(lambda: gateway.metric(RELOADED) == 1)
    gateway.expect("configuration reloaded")
    assert "configuration refused" not in gateway.admin("/readyz?verbose")[1]
    assert gateway.log.count("configuration refused") == 1


def test_a_webhook_that_is_in_force_blocks_no_other_change(setup: Setup, stage: Stage) -> None:
    # At a start there is none in force: the gateway serves, with the warnings.
    broken = client("{}", {"max": 3})
    setup.configure(broken)
    gateway = stage.start_gateway(setup.config)
    gateway.expect("policy mismatch: .*not served by")
    setup.configure({**broken, "failurePolicy": "Ignore", "timeoutSeconds": 3}, client(DENY))
    gateway.expect("configuration reloaded")
    assert gateway.review("/validate", "pod-create-mutate")["status"]["message"] == "h1.v.test: as before"
    # Another webhook with the same mistake is a change.
    setup.configure({**broken, "failurePolicy": "Ignore"}, client(DENY), broken)
    gateway.expect(REFUSED + r"webhooks\[2\]\.clientConfig\.worker\.policy")


def test_a_candidate_and_a_worker_that_is_not_known_block_nothing(setup: Setup, stage: Stage) -> None:
    gateway = stage.start_gateway(setup.config)
    setup.configure(client(DENY, rollout={"candidate": client("{}")}))
    after = gateway.expect("configuration reloaded").end()
    # A worker without ListPolicies may accept it, and so may one that cannot be reached.
    for targets in ((setup.worker.target, declaring(stage, None).target), ("unix:/nowhere",)):
        setup.configure(client("{}"), targets=targets)
        after = gateway.expect("configuration reloaded", after=after).end()
        setup.configure(client(DENY))
        after = gateway.expect("configuration reloaded", after=after).end()
    # One new worker beside the old ones is enough.
    new = setup.declared.with_name("new.json")
    setup.declare({DENY: {}, "{}": {}}, new)
    upgraded = declaring(stage, new).target
    setup.configure(client("{}"), targets=(setup.worker.target, upgraded))
    gateway.expect("configuration reloaded", after=after)
    assert "configuration refused" not in gateway.log


def test_a_pool_whose_new_workers_do_not_serve_the_policies_is_refused(setup: Setup, stage: Stage) -> None:
    gateway = stage.start_gateway(setup.config)
    other = setup.declared.with_name("other.json")
    setup.declare({"{}": {}}, other)
    target = declaring(stage, other).target
    setup.configure(client(DENY, {"max": 3}), targets=(target,))
    gateway.expect(REFUSED + r"webhooks\[0\]\.clientConfig\.worker\.policy")
    assert is_as_before(gateway)


@pytest.mark.process
def test_a_local_worker_stays_when_its_successor_is_refused(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    config = tmp_path / "config"
    config.mkdir()

    def use(policy: str) -> None:
        """Have the pool started by a command whose worker lists *policy* alone."""
        declared = tmp_path / f"{len(policy)}.json"
        declared.write_text(json.dumps({policy: {}}))
        pool = command_pool("pool", *WORKER, "--declare", str(declared))
        write_whole(
            config / "c.yaml", pool + webhook_document("validate", "v", "pool", {"webhook": client(DENY)})
        )

    use(DENY)
    gateway = start_gateway(config)
    assert is_as_before(gateway)
    use("{}")
    gateway.expect(REFUSED + r"webhooks\[0\]\.clientConfig\.worker\.policy")
    assert is_as_before(gateway)
    assert "lost; reconnecting" not in gateway.log
