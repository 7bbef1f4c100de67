"""The second pass, by the gateway of commands and a scripted worker on a socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.load import load
from gateway.engine.object_review import RequestOptions, request_for, review_of
from gateway.engine.second_pass import changed_again, conflicts
from gateway.tools.offline.gateway import offline_gateway
from tests.kit import pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.server import StartWorker

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "app", "image": "a:1"}]},
}


@pytest.fixture
def lines(start_worker: StartWorker, tmp_path: Path) -> Any:
    """Return a function: the lines of findings and of conflicts for webhooks with scripts."""
    target = start_worker().target

    async def run(
        file: Path, found: dict[str, Any], *, as_update: bool, is_dry_run: bool
    ) -> tuple[list[str], list[str]]:
        options = RequestOptions(is_dry_run=is_dry_run)
        async with offline_gateway(load([file])) as gateway:
            done = await gateway.review(review_of(request_for(found, options)))
            again = await changed_again(gateway.dry_run, done, as_update=as_update)
        return [one.line() for one in again], [one.line() for one in conflicts(done)]

    def of(
        *scripts: dict[str, Any],
        found: dict[str, Any] = POD,
        as_update: bool = False,
        is_dry_run: bool = True,
    ) -> tuple[list[str], list[str]]:
        file = tmp_path / "gateway.yaml"
        file.write_text(pool_document("p", target) + webhook_document("mutate", "m", "p", *scripts))
        return asyncio.run(run(file, found, as_update=as_update, is_dry_run=is_dry_run))

    return of


def test_idempotent_webhooks_are_not_named(lines: Any) -> None:
    change = {"op": "add", "path": "/metadata/labels/x", "value": "1"}
    assert lines({"label": "team"}, {"patch": [change]}, {}, as_update=True) == ([], [])


def test_a_webhook_that_counts_is_named_with_the_field(lines: Any) -> None:
    again, _ = lines({"label": "team"}, {"count": "runs"})
    assert again == ['h1.m.test changes again on its own result: metadata.annotations.runs: "1" becomes "2"']


def test_a_webhook_that_appends_is_named(lines: Any) -> None:
    found = {**POD, "spec": {"tolerations": [{"key": "a"}], "containers": []}}
    change = {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "b"}}
    again, _ = lines({"patch": [change]}, found=found)
    assert again == [
        'h0.m.test changes again on its own result: spec.tolerations[*]: nothing becomes {"key":"b"}'
    ]


def test_a_webhook_that_refuses_its_own_result_is_named(lines: Any) -> None:
    script = {"label": "seen", "when": "seen", "deny": {"message": "no", "code": 403}}
    assert lines(script) == (["h0.m.test does not accept its own result: no"], [])


def test_webhooks_that_do_not_rest_together_are_named(lines: Any) -> None:
    # Each is at rest on its own result: the first shows what it is given, and the second adds to it.
    again, _ = lines({"echo": "labels"}, {"label": "late"})
    change = 'metadata.annotations.labels: "app app" becomes "app late app"'
    assert again == [f"h0.m.test changes again on the result of all webhooks: {change}"]


def test_webhooks_that_overwrite_each_other_are_conflicts_and_rest_together(lines: Any) -> None:
    def labelled(value: str) -> dict[str, Any]:
        return {"patch": [{"op": "add", "path": "/metadata/labels/app", "value": value}]}

    meant = {**labelled("y"), "webhook": {"after": ["h0.m.test"]}}
    assert lines(labelled("x"), meant) == ([], [])
    again, found = lines(labelled("x"), labelled("y"))
    assert again == []
    assert found == ['metadata.labels.app: h1.m.test overwrites what h0.m.test wrote: "x" becomes "y"']


def test_only_an_update_may_change_again(lines: Any) -> None:
    rule = {"operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    on_update = {"label": "updated", "webhook": {"rules": [rule]}}
    assert lines({"label": "team"}, on_update) == ([], [])
    again, _ = lines({"label": "team"}, on_update, as_update=True)
    change = 'metadata.labels.updated: nothing becomes "set"'
    assert again == [f"h1.m.test changes again on the result of all webhooks, sent as an UPDATE: {change}"]


def test_no_value_of_a_secret_is_in_a_line(lines: Any) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "eA=="}}
    assert lines({"count": "runs"}, found=secret) == (
        ["h0.m.test changes again on its own result: metadata.annotations.runs"],
        [],
    )


def test_a_webhook_with_side_effects_is_called_again_in_dry_runs_only(lines: Any) -> None:
    scripts = {"count": "runs", "webhook": {"sideEffects": "NoneOnDryRun"}}, {"label": "team"}
    assert lines(*scripts, is_dry_run=False) == ([], [])
    again, _ = lines(*scripts)
    assert again == ['h0.m.test changes again on its own result: metadata.annotations.runs: "1" becomes "2"']
