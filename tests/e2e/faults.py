"""What workers do wrong, and a gateway behind which they do it."""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.objects import config_map, within
from tests.e2e.setups import BehindGateway, Hook, rule
from tests.kit import WorkerProcess, pool_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.e2e.setups import Phase

CONFIG_MAPS: Final = within("configmaps")
POLICIES: Final = ("Fail", "Ignore")
PHASES: Final[tuple[Phase, ...]] = ("mutate", "validate")
TYPES: Final[dict[Phase, str]] = {"mutate": "admit", "validate": "validating"}
"""What metrics call the phases."""


@dataclass(frozen=True)
class Fault:
    """What a worker does wrong."""

    script: dict[str, Any]
    cause: str
    """Pattern of what the user reads after the webhook's name."""
    timeout_s: int = 10
    phases: tuple[Phase, ...] = PHASES
    pools: tuple[str, ...] = ("stream", "unary")


def unusable(patch: object, cause: str) -> Fault:
    """Return the fault of an unusable *patch*. In the validating phase patches are ignored."""
    return Fault({"patch": patch}, rf"the answer's patch {cause}", phases=("mutate",), pools=("stream",))


FAULTS: Final = {
    "hangs": Fault({"hang": True}, "DEADLINE_EXCEEDED: no answer within 1s", timeout_s=1),
    # Both need the stream. After some of the next two the gateway calls the worker by Review for a while.
    "empty": Fault({"empty": True}, "malformed answer: a verdict without an outcome", pools=("stream",)),
    "wrong-id": Fault(
        {"wrong_id": True}, "DEADLINE_EXCEEDED: no answer within 1s", timeout_s=1, pools=("stream",)
    ),
    "garbage": Fault({"garbage": True}, "malformed answer: no ReviewResponse"),
    "oversized": Fault({"big": 9 << 20}, "RESOURCE_EXHAUSTED: .*larger than max.*"),
    **{
        name.lower().replace("_", "-"): Fault(
            {"status": name, "details": "say why\nand how"}, f"{name}: say why and how"
        )
        for name in ("CANCELLED", "UNKNOWN", "UNAVAILABLE", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED")
    },
    # The text is the same for a timeout in the worker and in the gateway.
    "deadline-exceeded": Fault({"status": "DEADLINE_EXCEEDED"}, "DEADLINE_EXCEEDED: no answer within 10s"),
    "unimplemented": Fault({"status": "UNIMPLEMENTED"}, "UNIMPLEMENTED"),
    "internal": Fault({"status": "INTERNAL", "details": "x" * 5000}, "INTERNAL: x{1000}"),
    "not-json": unusable("add a label, please", "is not a JSON Patch: not JSON: .*"),
    "no-list": unusable("{}", "is not a JSON Patch: not a JSON array of operations"),
    "no-objects": unusable(
        [["add", "/data/a", "b"]], "is not a JSON Patch: operation 0 is not a JSON object"
    ),
    "unknown-op": unusable([{"op": "append", "path": "/data/a"}], "does not apply: operation 0: .*append"),
    "no-such-path": unusable(
        [{"op": "add", "path": "/a/b/c", "value": 1}], "does not apply: operation 0: .*/a/b/c.*"
    ),
    "half": unusable(
        [{"op": "add", "path": "/data/half", "value": "done"}, {"op": "remove", "path": "/data/absent"}],
        "does not apply: operation 1: cannot remove '/data/absent': .*",
    ),
    "test-fails": unusable(
        [{"op": "test", "path": "/data/key", "value": "other"}],
        "does not apply: operation 0: .*'/data/key' failed",
    ),
    "array": unusable([{"op": "replace", "path": "", "value": []}], "does not apply: .*array.*"),
    "patch": Fault(
        {"patch": [{"op": "add", "path": "/data/key", "value": "other"}]},
        "a validating webhook may not answer a patch",
        phases=("validate",),
        pools=("stream",),
    ),
}


GONE: Final = {
    "exits": Fault({"exit": True}, "UNAVAILABLE: .*"),
    "hangs": Fault({"hang": True}, "UNAVAILABLE: .*"),
    "frozen": Fault({}, "DEADLINE_EXCEEDED: no answer within 1s", timeout_s=1),
    # For calls that have to succeed: a second is too short on a busy machine.
    "back": Fault({}, ""),
}
"""What becomes of a worker that others do not depend on."""
ABSENT: Final = Fault({}, "UNAVAILABLE: .*")
TWICE: Final = Fault({"twice": True}, "")
ON_DELETE: Final = Fault({"patch": [{"op": "add", "path": "/metadata/labels", "value": {}}]}, "")


def selected(**labels: str) -> dict[str, Any]:
    """Return the selector of objects that carry *labels*."""
    return {"matchLabels": labels}


def label(pool: str, name: str, policy: str, phase: Phase) -> str:
    """Return the label of objects for which the webhook of a fault is called; its name begins so, too."""
    return f"{pool}-{name}-{policy}-{phase}".lower()


def faulty(pool: str, name: str, fault: Fault, operation: str = "CREATE") -> Iterator[Hook]:
    """Yield the webhooks of *fault*, one for each phase and policy."""
    for phase in fault.phases:
        for policy in POLICIES:
            called = label(pool, name, policy, phase)
            fields = {
                "failurePolicy": policy,
                "timeoutSeconds": fault.timeout_s,
                "objectSelector": selected(fault=called),
            }
            rules = (rule("configmaps", operation),)
            yield Hook(phase, f"{called}.faults.test", fault.script, rules, fields=fields, pool=pool)


def companions() -> Iterator[Hook]:
    """Yield the webhooks that stand before and after the faulty ones, and fail closed."""
    creates = (rule("configmaps", "CREATE"),)
    everywhere = {"objectSelector": {"matchExpressions": [{"key": "fault", "operator": "Exists"}]}}
    for name, configuration in (("early", "a-first"), ("late", "z-last")):
        yield Hook("mutate", f"{name}.mutate.test", {"label": name}, creates, configuration, everywhere)
        script = {"warnings": [f"{name} was here"]}
        yield Hook("validate", f"{name}.validate.test", script, creates, configuration, everywhere)
    denial = {"deny": {"code": 403, "message": "not this one"}}
    fields = {"objectSelector": selected(deny="please")}
    yield Hook("validate", "denier.validate.test", denial, creates, "z-last", fields)


class Faulty(BehindGateway):
    """A gateway with faulty webhooks and their companions. The faulty ones are in pools of several kinds."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        hooks = [
            *companions(),
            *(
                one
                for name, fault in FAULTS.items()
                for pool in fault.pools
                for one in faulty(pool, name, fault)
            ),
            *(one for name, fault in GONE.items() for one in faulty("fragile", name, fault)),
            *faulty("absent", "started", ABSENT),
            *faulty("stream", "twice", TWICE),
            *faulty("scripted", "delete", ON_DELETE, "DELETE"),
        ]
        super().__init__(cluster, folder, hooks, "faulty")

    def write_configuration(self) -> None:
        super().write_configuration()
        pools = [
            pool_document(transport.lower(), f"unix:{self.socket}", transport=transport)
            for transport in ("Stream", "Unary")
        ]
        pools += [pool_document(name, f"unix:{self.folder / name}.sock") for name in ("fragile", "absent")]
        (self.config / "pools.yaml").write_text("".join(pools))

    @contextmanager
    def fragile_worker(self) -> Iterator[WorkerProcess]:
        """The worker of the pool ``fragile``, once the gateway has found it."""
        socket = self.folder / "fragile.sock"
        socket.unlink(missing_ok=True)
        worker = WorkerProcess(f"unix:{socket}")
        try:
            eventually(
                lambda: self.gateway.metric(
                    "admission_gateway_worker_endpoints", pool="fragile", state="ready"
                )
            )
            yield worker
        finally:
            worker.signal(signal.SIGCONT)
            worker.stop()

    def create(self, namespace: str, fault: str, name: str, **labels: str) -> Answer:
        document = config_map(name, {"fault": fault, **labels}, key="value")
        return self.cluster.api.create(CONFIG_MAPS.format(namespace=namespace), document)

    def stored(self, namespace: str, name: str) -> Answer:
        return self.cluster.api.get(f"{CONFIG_MAPS.format(namespace=namespace)}/{name}")

    def shows_failure(self, namespace: str, fault: str, phase: Phase, cause: str) -> None:
        """Assert that *fault*, a label, is denied with *cause* or fails open, by its failurePolicy."""
        webhook = f"{fault}.faults.test"
        opened = self.opened(webhook, phase)
        answer = self.create(namespace, fault, "victim")
        if "-fail-" in fault:
            self.is_refused(answer, namespace, webhook, cause)
            assert self.opened(webhook, phase) == opened
        else:
            self.is_stored(answer, namespace, "victim")
            assert self.opened(webhook, phase) == opened + 1
            assert self.failed_open(namespace, "victim") == [webhook]

    def is_refused(self, answer: Answer, namespace: str, webhook: str, cause: str) -> None:
        """Assert that the user reads the failure, once, and that nothing is stored."""
        assert (answer.status, answer.document["reason"]) == (500, "InternalError"), answer
        message = (
            rf'admission webhook "[^"]+" denied the request: failed calling webhook "{webhook}": {cause}'
        )
        assert re.fullmatch(message, answer.message), answer.message
        assert self.stored(namespace, "victim").status == 404

    def is_stored(self, answer: Answer, namespace: str, name: str) -> None:
        """Assert that the object is stored with the changes of the companion policies and no others."""
        assert answer.status == 201, answer
        assert answer.warnings == ("early was here", "late was here")
        document = self.stored(namespace, name).document
        assert document["data"] == {"key": "value"}
        labels = document["metadata"]["labels"]
        assert {**labels, "fault": ""} == {"early": "set", "late": "set", "fault": ""}

    def opened(self, webhook: str, phase: Phase) -> float:
        return self.gateway.metric(
            "admission_gateway_webhook_fail_open_total", name=webhook, type=TYPES[phase]
        )

    def failed_open(self, namespace: str, name: str) -> list[str]:
        """Return the webhooks that failed open, as the audit log of the API server has them."""

        def is_it(event: dict[str, Any]) -> bool:
            about = event["objectRef"]
            return bool((about.get("namespace"), about.get("name")) == (namespace, name))

        (event,) = self.cluster.audit_events(is_it)
        return [
            text
            for key, text in event["annotations"].items()
            if re.search(r"/failed-open\.round_0_index_\d+$", key)
        ]
