"""``preview --server-dry-run``: what each answer of an API server is taken for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.decisions.test_redaction import CANARY
from tests.kit import call_command
from tests.kubernetes.server import ApiServer, hang_up, refuse
from tests.preview.kit import CONFIG_MAP, WEB, configure, findings, preview

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kubernetes.server import Fault, Handler

pytestmark = pytest.mark.process

NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
IN_SHOP = CONFIG_MAP.replace("name: c", "name: c, namespace: shop")
CAUSES = [{"field": "spec.replicas", "message": "Invalid value: -1", "reason": "FieldValueInvalid"}]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        found.put("default")
        yield found


@pytest.fixture
def arguments(tmp_path: Path, start_worker: StartWorker, server: ApiServer) -> tuple[Any, ...]:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[{}])
    return "-", "--config", config, "--server-dry-run", "--kubeconfig", server.kubeconfig(tmp_path)


def test_objects_of_the_input_are_created_in_a_dry_run(server: ApiServer, arguments: tuple[Any, ...]) -> None:
    report = preview(*arguments, stdin=f"{WEB}---\n{IN_SHOP}---\n{NAMESPACE}")
    assert not findings(report)
    posts = [found["path"] for kind, found in server.requests if kind == "post"]
    assert sorted(posts) == [
        "/api/v1/namespaces",
        "/api/v1/namespaces/shop/configmaps",
        # Its controllers create the others.
        "/apis/apps/v1/namespaces/default/deployments",
    ]


@pytest.mark.parametrize(
    ("fault", "status", "level", "message", "field"),
    [
        (refuse(422, "is invalid", causes=CAUSES), 1, "error", "Invalid value: -1", "spec.replicas"),
        (
            refuse(400, 'strict decoding error: unknown field "spec.replica"'),
            1,
            "error",
            'strict decoding error: unknown field "spec.replica"',
            "spec.replica",
        ),
        (refuse(403, "exceeded quota: few"), 1, "error", "exceeded quota: few", ""),
        (refuse(404, 'namespaces "default" not found'), 1, "error", 'namespaces "default" not found', ""),
        (
            refuse(403, 'User "ann" cannot create resource'),
            3,
            "error",
            'User "ann" cannot create resource',
            "",
        ),
        (refuse(500, "an internal error"), 3, "error", "an internal error", ""),
    ],
)
def test_what_an_answer_says_about_an_object(
    fault: Fault,
    status: int,
    level: str,
    message: str,
    field: str,
    server: ApiServer,
    arguments: tuple[Any, ...],
) -> None:
    server.faults["post"].append(fault)
    report = preview(*arguments, stdin=WEB, status=status)
    (found,) = findings(report)
    assert (found["rule"], found["level"]) == ("kubernetes-validation", level)
    assert (found["message"], found["field"]) == (message, field)
    assert report["objects"][0]["result"] == ("denied" if status == 1 else "undecided")
    if field:
        assert WEB.split("\n")[found["line"] - 1].split(":")[0].strip() in ("replicas", "spec")


def test_an_object_that_exists_has_passed_all_else(server: ApiServer, arguments: tuple[Any, ...]) -> None:
    server.faults["post"].append(refuse(409, "already exists"))
    assert not findings(preview(*arguments, stdin=WEB))


def test_what_needs_other_objects_of_the_input_is_a_note(
    server: ApiServer, arguments: tuple[Any, ...]
) -> None:
    def answer(handler: Handler) -> None:
        if "/namespaces/shop/" in handler.path:
            handler.refuse(404, 'namespaces "shop" not found')
        else:
            handler.answer(201, json.loads(handler.body))

    server.faults["post"].extend([answer] * 2)
    # A note alone leaves the object allowed.
    (found,) = findings(preview(*arguments, stdin=f"{IN_SHOP}---\n{NAMESPACE}"))
    assert found["level"] == "note"
    assert found["message"].startswith("the API server cannot try it before its namespace")


def test_an_api_server_that_is_gone_ends_the_preview(server: ApiServer, arguments: tuple[Any, ...]) -> None:
    server.faults["post"].append(hang_up)
    assert preview(*arguments, stdin=WEB, status=3)["stopped"]


def test_messages_have_no_value_of_a_secret(server: ApiServer, arguments: tuple[Any, ...]) -> None:
    server.faults["post"].append(refuse(400, f"cannot decode {CANARY}"))
    text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{a: {CANARY}}}\n"
    report = preview(*arguments, stdin=text, status=1)
    assert findings(report)
    assert CANARY not in json.dumps(report)


def test_a_cluster_has_to_be_named(tmp_path: Path) -> None:
    done = call_command("preview", tmp_path, "--config", tmp_path, "--server-dry-run")
    assert done.returncode == 2
    assert done.stderr == "admission-gateway: --server-dry-run needs --kubeconfig or --context\n"
