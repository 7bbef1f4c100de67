"""Changing rollout plans by page: what is obeyed, and hostile requests, which change nothing."""

from __future__ import annotations

import http.client
import re
import urllib.parse
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.serving_settings import PageActionSettings, PageSettings
from gateway.server.pages.acting import WRONG_AT_ONCE, WRONG_PER_SECOND, Asked, Guard
from gateway.server.serving.page_access import PageAccess
from tests.kit import PATIENCE_S, run_command
from tests.pages.test_pages import fetch, found
from tests.pages.test_rollouts import PLAN, plan_documents, plan_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

PASSWORD = "0123456789abcdef-0123456789abcdef"
FORM = "application/x-www-form-urlencoded"
HOSTILE = "<script>alert(1)</script>\u202e\x1b[2J"


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.slow)])
def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> GatewayProcess:
    """A gateway whose pages may change its only plan."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/people").write_text(f"alice:{PASSWORD}\nbob:{PASSWORD}2\n")
    documents = plan_documents(
        tmp_path / "plans", start_worker().target, pages={"actions": {"basicAuthFile": "people"}}
    )
    (tmp_path / "config/c.yaml").write_text(documents)
    started = start_gateway(tmp_path / "config", "--processes", str(request.param))
    plan_of(started)
    return started


def path_of(gateway: GatewayProcess) -> str:
    return f"/rollouts/{plan_of(gateway)['name']}"


def form_of(gateway: GatewayProcess, action: str) -> dict[str, str]:
    """Return the hidden fields of the page that asks to confirm *action*."""
    status, headers, page = fetch(gateway, f"{path_of(gateway)}?action={action}")
    assert status == 200
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "same-origin"
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
    assert fields["action"] == action
    return fields


def post(
    gateway: GatewayProcess,
    path: str,
    fields: dict[str, str],
    *,
    body: bytes | None = None,
    method: str = "POST",
    **headers: str | None,
) -> tuple[int, str]:
    """Return status and body of the answer to a form of the own page, with *headers* changed."""
    host = f"127.0.0.1:{gateway.admin_port}"
    usual = {"Content_Type": FORM, "Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
    text = urllib.parse.urlencode(fields, errors="replace").encode() if body is None else body
    with closing(
        http.client.HTTPConnection("127.0.0.1", gateway.admin_port, timeout=PATIENCE_S)
    ) as connection:
        sent = {name.replace("_", "-"): value for name, value in {**usual, **headers}.items() if value}
        connection.request(method, path, text, sent)
        response = connection.getresponse()
        return response.status, response.read().decode()


def decisions(gateway: GatewayProcess) -> list[tuple[str, str, str]]:
    return [(one["action"], one["who"], one["why"]) for one in plan_of(gateway)["decisions"]]


@pytest.mark.process
def test_a_person_pauses_resumes_skips_and_rolls_back_by_page(gateway: GatewayProcess) -> None:
    path = path_of(gateway)
    for number, (action, who, then) in enumerate(
        (
            ("pause", "alice", "Paused, stage 1 of 3"),
            ("resume", "bob", "Progressing, stage 1 of 3"),
            ("skip", "alice", "Progressing, stage 2 of 3"),
            ("rollback", "alice", "RolledBack, stage 1 of 3"),
        )
    ):
        form = form_of(gateway, action)
        password = PASSWORD if who == "alice" else f"{PASSWORD}2"
        fields = {**form, "who": who, "password": password, "why": f"reason {number} {HOSTILE}"}
        status, page = post(gateway, path, fields)
        assert (status, then in page) == (200, True), page
        assert "<script" not in page
        eventually(lambda: decisions(gateway)[0][0] == action)  # noqa: B023 - is run at once
        assert decisions(gateway)[0][:2] == (action, f"{who} by page")
        # The same form again: the plan is not what it showed.
        status, page = post(gateway, path, fields)
        assert (status, "has changed since you looked" in page) == (409, True), page
    assert len(decisions(gateway)) == 5


@pytest.mark.process
def test_a_person_approves_and_forgets_by_page(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/people").write_text(f"alice:{PASSWORD}\n")
    settings, target = {"pages": {"actions": {"basicAuthFile": "people"}}}, start_worker().target
    first, *others = PLAN["stages"]
    plan = {**PLAN, "stages": [{**first, "approval": "Required"}, *others]}
    file, plans = tmp_path / "config/c.yaml", tmp_path / "plans"
    file.write_text(plan_documents(plans, target, {"plan": plan}, **settings))
    gateway = start_gateway(tmp_path / "config")
    who = {"who": "alice", "password": PASSWORD, "why": "all teams agree"}

    def can(action: str) -> bool:
        return action in {one["action"] for one in plan_of(gateway)["actions"]}

    assert can("approve")
    assert not can("forget")
    assert [one["approval"] for one in plan_of(gateway)["allStages"]] == [True, False, False]
    page = fetch(gateway, f"{path_of(gateway)}?action=approve")[2]
    assert re.search(r"once all gates pass.*2 of 3.*team-0", page, re.DOTALL)
    status, page = post(gateway, path_of(gateway), {**form_of(gateway, "approve"), **who})
    assert (status, "Progressing, stage 1 of 3" in page) == (200, True), page
    eventually(lambda: decisions(gateway)[0] == ("approve", "alice by page", who["why"]))
    assert not can("approve")
    assert "given by alice by page" in str(eventually(lambda: approval_of(gateway, "pass")))

    file.write_text(plan_documents(plans, target, {}, **settings))
    eventually(lambda: found(gateway, "/rollouts")["plans"][0]["phase"] == "Held" and can("forget"))
    path = path_of(gateway)
    page = fetch(gateway, path)[2]
    assert "Times and gates are gone with the plan" in page
    assert 'id="gates"' not in page
    page = fetch(gateway, f"{path}?action=forget")[2]
    assert re.search(r"then.*Enforce.*every namespace", page, re.DOTALL)
    status, page = post(gateway, path, {**form_of(gateway, "forget"), **who})
    assert (status, "Forgotten, the configuration holds" in page) == (200, True), page
    assert path not in page, "there is no page of the plan any more"
    # The configuration holds: there is no plan to see any more.
    eventually(lambda: found(gateway, "/rollouts")["plans"] == [])
    assert fetch(gateway, path)[0] == 404


def approval_of(gateway: GatewayProcess, value: str) -> list[dict[str, str]]:
    """Return the gate of the approval if it has *value*."""
    gates: list[dict[str, str]] = plan_of(gateway)["gates"]
    return [one for one in gates if (one["name"], one["value"]) == ("approval", value)]


@pytest.mark.process
def test_hostile_requests_change_nothing(gateway: GatewayProcess) -> None:
    path, form = path_of(gateway), form_of(gateway, "pause")
    right = {**form, "who": "alice", "password": PASSWORD, "why": "a reason"}
    before = decisions(gateway)
    host = f"127.0.0.1:{gateway.admin_port}"

    def refused(status: int, fields: dict[str, str] = right, to: str = path, **request: Any) -> str:
        found_status, page = post(gateway, to, fields, **request)
        assert found_status == status, page
        assert PASSWORD not in page
        return page

    for wrong in ({"password": PASSWORD + "x"}, {"who": "bob"}, {"password": ""}):
        assert "the name or the password is wrong" in refused(403, {**right, **wrong})
    assert "without a colon" in refused(400, {**right, "who": "alice:0", "password": PASSWORD[1:]})
    assert "expected your name" in refused(400, {**right, "who": "a" * 101})
    assert "expected a reason" in refused(400, {**right, "why": " "})
    assert "expected pause, resume, approve, skip, rollback or forget" in refused(
        400, {**right, "action": HOSTILE}
    )
    assert "<script" not in refused(400, {**right, "why": "", "who": HOSTILE})
    assert "has changed since" in refused(409, {**right, "seen": form["seen"] + "0"})
    assert "has changed since" in refused(409, {**right, "seen": ""})
    assert "expected Paused or RolledBack" in refused(409, {**right, "action": "resume"})
    refused(404, to="/rollouts/0000")
    refused(405, to="/rollouts")
    refused(404, to="/rollouts/")
    # Other sites, and names that they resolve to this address.
    refused(403, Origin="http://evil.example", Sec_Fetch_Site=None)
    refused(403, Sec_Fetch_Site="cross-site")
    refused(403, Sec_Fetch_Site="same-site")
    refused(403, Sec_Fetch_Site="none")
    refused(403, Origin=None, Sec_Fetch_Site=None)
    refused(403, Origin="null", Sec_Fetch_Site=None)
    refused(403, Host="evil.example", Origin="http://evil.example")
    # Other methods and bodies.
    refused(415, Content_Type="application/json")
    refused(415, Content_Type="text/plain")
    refused(413, {**right, "why": "x" * 17_000})
    refused(413, Transfer_Encoding="chunked", body=b"5\r\nwho=a\r\n0\r\n\r\n")
    refused(405, method="PUT")
    refused(405, method="DELETE")
    assert "name" in refused(400, body=b"&=&%00=\xff" * 20)
    # What a GET asks for is not done, and no part of a process is given to clients of the port.
    query = urllib.parse.urlencode(right)
    assert fetch(gateway, f"{path}?{query}")[0] == 200
    refused(400, to=f"{path}?format=process", body=b'["pause","","alice","a reason"]')
    status, headers, _ = fetch(gateway, f"{path}?action=pause", Origin="http://evil.example", Host=host)
    assert status == 200
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert decisions(gateway) == before


@pytest.mark.process
def test_without_the_setting_pages_change_nothing(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/c.yaml").write_text(plan_documents(tmp_path / "plans", start_worker().target))
    gateway = start_gateway(tmp_path / "config")
    path = path_of(gateway)
    page = fetch(gateway, f"{path}?action=pause")[2]
    assert "<form" not in page
    assert 'href="?action=pause">pause' not in page
    status, body = post(gateway, path, {"action": "pause"})
    assert (status, "expected GET, HEAD" in body) == (405, True)
    assert [one[0] for one in decisions(gateway)] == ["start"]


@pytest.mark.process
def test_a_form_of_a_state_before_another_decision_is_refused(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    path, form = path_of(gateway), form_of(gateway, "skip")
    done = run_command("rollout", "pause", "--folder", tmp_path / "plans", "--reason", "a fault was found")
    assert done.returncode == 0, done.stderr
    eventually(lambda: found(gateway, "/rollouts")["plans"][0]["phase"] == "Paused")
    fields = {**form, "who": "alice", "password": PASSWORD, "why": "all is well"}
    status, page = post(gateway, path, fields)
    assert status == 409
    assert "a fault was found" in page
    assert decisions(gateway)[0][0] == "pause"


def test_an_old_password_is_refused_once_the_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "people"
    file.write_text(f"alice:{PASSWORD}\n")
    access = PageAccess(PageSettings(actions=PageActionSettings(file)), "127.0.0.1:9090")
    guard, asked = Guard(lambda: 1000.0), Asked("pause", "0", "alice", "a reason")
    assert guard.refusal(access, asked, PASSWORD) is None
    file.write_text(f"alice:{PASSWORD}2\n")
    for _ in range(2):
        # A file that has changed is read once it is stable.
        access.refresh()
    assert guard.refusal(access, asked, PASSWORD) == (403, "the name or the password is wrong")
    assert guard.refusal(access, asked, f"{PASSWORD}2") is None


def test_wrong_passwords_are_bounded_and_then_right_ones_wait_too(tmp_path: Path) -> None:
    file, now = tmp_path / "people", [1000.0]
    file.write_text(f"alice:{PASSWORD}\n")
    access = PageAccess(PageSettings(actions=PageActionSettings(file)), "127.0.0.1:9090")
    guard, asked = Guard(lambda: now[0]), Asked("pause", "0", "alice", "a reason")

    def status(password: str) -> int:
        refusal = guard.refusal(access, asked, password)
        return 200 if refusal is None else refusal[0]

    assert [status(PASSWORD) for _ in range(100)] == [200] * 100
    assert [status("wrong") for _ in range(WRONG_AT_ONCE)] == [403] * WRONG_AT_ONCE
    assert [status("wrong"), status(PASSWORD)] == [429, 429]
    now[0] += 1 / WRONG_PER_SECOND + 0.1
    assert status(PASSWORD) == 200
    now[0] += 3600
    assert sum(status("x" * 100_000) == 403 for _ in range(100)) == WRONG_AT_ONCE
    file.write_text("")
    now[0] += 3600
    assert status(f"{PASSWORD}\0") == 403
