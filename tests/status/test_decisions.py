"""``admission-gateway decisions``: a denial is found in whichever replica made it."""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import GatewayError
from gateway.observe.decisions.record import WebhookOutcome
from gateway.server.pages.process import MAX_DECISIONS
from gateway.tools.cli.decisions import MAX_LIMIT, OUTCOMES, print_json, print_text
from gateway.tools.kubectl.preview import Result, _end, _lines
from gateway.tools.kubectl.requests import User
from gateway.tools.kubectl.why import _now
from gateway.tools.status.decisions import Decisions, merged, places, read_decisions, text
from gateway.tools.status.explanations import Explanation, explain
from gateway.tools.status.reading import read
from tests.kit import ROOT, call_command, pool_document, webhook_document
from tests.pages.kit import documents
from tests.pages.test_pages import fetch, review
from tests.status.test_command import cluster  # noqa: F401 - a fixture
from tests.status.test_render import Port
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.status.test_command import Cluster
    from tests.worker.server import StartWorker


def reviewed(gateway: GatewayProcess, uid: str) -> None:
    assert not gateway.review("/validate", review(uid))["allowed"]
    command = "decisions", uid, "--admin", f"127.0.0.1:{gateway.admin_port}"
    eventually(lambda: call_command(*command).returncode == 0, "the decision")


class Explaining:
    """The admin port of a gateway that takes reviews."""

    name = "gateway"

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        status, _, text = await asyncio.to_thread(fetch, self._gateway, path, body)
        return status, text.encode()


@pytest.mark.process
def test_a_denial_is_found_in_whichever_replica_made_it(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    cluster: Cluster,  # noqa: F811 - the fixture
) -> None:
    cluster.forwards = True
    (tmp_path / "config").mkdir()
    denies = [{"deny": {"message": "no team"}}, {"deny": {"message": "no owner"}}]
    (tmp_path / "config" / "c.yaml").write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", *denies)
    )
    gateways = {name: start_gateway(tmp_path / "config") for name in ("gateway-a", "gateway-b")}
    cluster.admin_ports = {name: gateway.admin_port for name, gateway in gateways.items()}
    for name, gateway in gateways.items():
        reviewed(gateway, f"uid-of-{name}")
    command = (
        "decisions",
        "--cluster",
        "--kubeconfig",
        cluster.kubeconfig(tmp_path),
        "--namespace",
        "policies",
    )
    done = call_command(*command, "uid-of-gateway-b")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.split("\n")
    assert "  at gateway-b" in lines
    assert "  h0.v.test: no team" in lines
    assert "  h1.v.test: no owner" in lines
    assert any("  v/h1.v.test: Denied by " in line for line in lines)
    (found,) = json.loads(call_command(*command, "uid-of-gateway-a", "--json").stdout)["decisions"]
    assert (found["gateway"], found["uid"]) == ("gateway-a", "uid-of-gateway-a")
    assert "notCalled" in found

    listed = call_command(*command)
    assert listed.returncode == 1  # one pod is pending
    assert [name in listed.stdout for name in ("uid-of-gateway-a", "uid-of-gateway-b")] == [True, True]
    assert "new: no answer: the pod does not run: Pending" in listed.stdout

    missing = call_command(*command, "another")
    assert (missing.returncode, missing.stdout) == (1, "")
    log = "kubectl logs --namespace policies --selector app.kubernetes.io/name=admission-gateway --tail=-1"
    for words in (
        "no decision with the uid another was found in:",
        "  gateway-a: has denials and failures since 20",
        "  new: no answer: the pod does not run: Pending",
        "a replaced pod takes its decisions with it",
        f"{log} | grep another",
    ):
        assert words in missing.stderr
    alone = call_command("decisions", "a;b", "--admin", f"127.0.0.1:{gateways['gateway-a'].admin_port}")
    assert "another replica made it: admission-gateway decisions 'a;b' --cluster" in alone.stderr

    at_one = ("decisions", "--admin", f"127.0.0.1:{gateways['gateway-a'].admin_port}")
    mistyped = call_command(*at_one, "--webhook", "h1.v.tset").stdout
    assert mistyped == 'no decision matches; there is no webhook "h1.v.tset"; did you mean "h1.v.test"?\n'
    assert call_command(*at_one, "--webhook", "h1.v.test", "--user", "x").stdout == "no decision matches\n"

    for flags in (("--limit", "0"), ("--outcome", "x"), ("uid", "--user", "ann"), ("--namespace", "x")):
        assert call_command("decisions", *flags).returncode == 2


@pytest.mark.process
def test_an_allowed_request_says_who_would_have_refused_it_and_which_worker_answered(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "config").mkdir()
    samples = (ROOT / "gateway/dev.yaml").read_text()
    warned = {"deny": {"message": "no team"}, "webhook": {"rollout": {"mode": "Warn"}}}
    audited = {"deny": {"message": "no owner"}, "webhook": {"rollout": {"mode": "Audit"}}}
    own = webhook_document("validate", "v", "pool", warned, audited)
    own += pool_document("pool", start_worker().target)
    (tmp_path / "config" / "c.yaml").write_text(f"{samples}---\n{own}")
    gateway = start_gateway(tmp_path / "config")
    labelled = {"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": {"containers": []}}
    assert gateway.review("/validate", review("warned", object=labelled))["allowed"]
    at = ("--admin", f"127.0.0.1:{gateway.admin_port}")
    single = eventually(lambda: call_command("decisions", "warned", *at).stdout, "the decision").split("\n")
    listed = call_command("decisions", *at).stdout.split("\n")

    refused = "Allowed, would be refused by h0.v.test (mode Warn), h1.v.test (mode Audit): "
    for lines in (single, listed):
        assert refused in lines[0]
    assert listed[2:4] == ["  h0.v.test: Denied: no team", "  h1.v.test: Denied: no owner"]
    explained = asyncio.run(explain([Explaining(gateway)], review("explained", object=labelled))).lines()
    assert any(" in pool samples (started by the gateway), " in line for line in explained)
    for begin, end in (
        (
            "samples/require-labels.samples.example: Allowed by ",
            " in pool samples (started by the gateway), ",
        ),
        ("v/h0.v.test: Denied by ", " in pool pool (unix:…/s), mode Warn: no effect, "),
    ):
        (line,) = [one for one in single if one.startswith(f"  {begin}")]
        assert end in line


def test_a_failure_that_is_not_enforced_is_told_from_a_denial() -> None:
    (one,) = documents()["decisions"]["decisions"]
    hooks = [
        {**hook, "mode": "Warn", "message": message}
        for hook, message in zip(one["webhooks"][2:6], ("no team", "gone", "gone", ""), strict=True)
    ]
    of_list = {name: value for name, value in one.items() if name != "notCalled"}
    of_list |= {"outcome": "Allowed", "webhook": "", "allowed": True, "message": "", "webhooks": hooks}
    first, _, *reasons, _ = text([Decisions("a", [of_list])])
    names = "w2.b.c (mode Warn), w3.b.c (mode Warn), w5.b.c (mode Warn)"
    assert f" Allowed, would be refused by {names}: " in first
    assert reasons == ["  w2.b.c: Denied: no team", "  w3.b.c: FailedClosed: gone", "  w5.b.c: DryRunRefused"]
    (refused, *_) = text([Decisions("a", [{**of_list, "outcome": "Denied", "allowed": False}])])
    assert "would be refused" not in refused


def test_a_dry_run_says_what_a_mode_would_let_pass() -> None:
    warned = documents()["explain"]["decisions"][1]
    would_be = "would be refused by w2.b.c (mode Warn), w3.b.c (mode Warn), w5.b.c (mode Warn)"
    allowed, denied = Explanation("g", [warned]), Explanation("g", [warned, {**warned, "allowed": False}])
    request = {"kind": {"kind": "Pod"}, "namespace": "shop", "name": "web", "object": {}}
    titles = [_lines(Result("web.yaml", request, "", one))[0] for one in (allowed, denied)]
    assert titles == [f"web.yaml: Pod shop/web: {verdict}" for verdict in (f"allowed, {would_be}", "denied")]
    assert list(_now(allowed))[1] == f"  {would_be}"
    assert would_be not in "\n".join(_now(denied))


def test_the_options_are_those_of_the_page() -> None:
    assert MAX_LIMIT == MAX_DECISIONS
    assert set(OUTCOMES) == set(get_args(WebhookOutcome))


def test_the_decisions_of_gateways_are_merged_by_time() -> None:
    (one,) = documents()["decisions"]["decisions"]
    found = [
        Decisions(name, [{**one, "time": f"2026-01-01T00:00:0{second}Z"} for second in seconds])
        for name, seconds in (("a", (5, 1)), ("b", (4, 3)))
    ]
    assert [each["gateway"] for each in merged(found, 3)] == ["a", "b", "b"]


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_of_a_gateway_reaches_the_terminal_unescaped(content: str) -> None:
    pages = documents(lambda usual: usual + content)
    found = [
        Decisions("a" + content, pages["decisions"]["decisions"], content, 3),
        Decisions("b", [pages["decision"]["decision"]]),
        Decisions("c", error=content),
    ]
    for line in (*text(found), *places(found)):
        assert line.isprintable()


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"kind": "DecisionList"}', b"\xff", b'{"error": "the pages are off"}']
)
def test_an_answer_of_another_program_is_an_error_of_one_line(body: bytes, status: int) -> None:
    found = asyncio.run(read_decisions(Port(lambda _: (status, body)), {"uid": "a"}))
    assert found.decisions == []
    assert found.error
    assert "\n" not in found.error
    assert status == 200 or "its pages cannot be read: " in found.error


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


ODD = ["null", "true", "5", "9" * 400, "1e999", '"x"', "[]", '["x"]', "{}", '{"x":[7]}']
ODD += [nested(levels) for levels in (250, 900, 100_000)]


@given(st.data())
def test_whatever_a_gateway_answers_is_printed_or_an_error(data: st.DataObject) -> None:
    """One value anywhere in its answers is another one."""
    pages = copy.deepcopy(documents())
    parent: Any = pages
    key: Any = data.draw(st.sampled_from(["overview", "decisions", "decision", "explain"]))
    while isinstance(parent[key], dict | list) and parent[key] and data.draw(st.integers(0, 9)):
        parent = parent[key]
        key = data.draw(st.sampled_from(list(parent) if isinstance(parent, dict) else range(len(parent))))
    parent[key] = "ODD"
    odd = data.draw(st.sampled_from(ODD))

    def answer(name: str) -> tuple[int, bytes]:
        return 200, json.dumps(pages[name]).replace('"ODD"', odd).encode()

    class Hostile(Port):
        async def post(self, *_: object) -> tuple[int, bytes]:
            return answer("explain")

    port = Hostile(lambda path: answer("decision" if "/decisions/" in path else "decisions"))
    for wanted in ({}, {"uid": "a"}):
        found = [asyncio.run(read_decisions(port, wanted))]
        print_json(found, merged(found, 9))
        print_text(found, 9)
    reading = asyncio.run(read(Port(lambda _: answer("overview"))))
    json.dumps(reading.as_json())
    with suppress(GatewayError):
        explanation = asyncio.run(explain([port], b"{}"))
        result = Result("f", {"kind": {"kind": "Pod"}, "name": "x", "object": {}}, "", explanation)
        json.dumps(result.as_json())
        _end(argparse.Namespace(json=False), [result], User())


@given(st.text(min_size=1))
def test_a_uid_reaches_the_gateway_as_it_is(uid: str) -> None:
    pages: dict[str, Any] = documents()
    asked: list[str] = []

    def answer(path: str) -> tuple[int, bytes]:
        asked.append(path)
        return 200, json.dumps(pages["decision" if "/decisions/" in path else "decisions"]).encode()

    found = asyncio.run(read_decisions(Port(answer), {"uid": uid}))
    assert found.error == ""
    parts = [urlsplit(path) for path in asked]
    assert dict(parse_qsl(parts[0].query, keep_blank_values=True))["uid"] == uid
    assert unquote(parts[1].path) == f"/decisions/{uid}"
    assert "notCalled" in found.decisions[0]
