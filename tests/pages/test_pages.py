"""The pages of a running gateway, with one process and with several."""

from __future__ import annotations

import base64
import http.client
import json
import re
import secrets
import urllib.parse
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.kubelet.network import NODE_IP, missing, private_network
from tests.kit import PATIENCE_S, REVIEWS, pool_document, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

POD = json.loads((REVIEWS / "pod-create-mutate.json").read_text())
PATHS = ("/", "/decisions", "/namespaces", "/configz", "/explain")


def fetch(
    gateway: GatewayProcess, path: str, body: bytes = b"", *, address: str = "127.0.0.1", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body of a GET, or of a POST of *body*."""
    connection = http.client.HTTPConnection(address, gateway.admin_port, timeout=PATIENCE_S)
    try:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST" if body else "GET", path, body or None, fields)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read().decode()
    finally:
        connection.close()


def found(gateway: GatewayProcess, path: str, body: bytes = b"") -> dict[str, Any]:
    """Return the JSON of the page at *path*, with the parts of all processes.

    A page leaves out a process that does not answer for two seconds. One explains a review.
    """
    separator = "&" if "?" in path else "?"

    def document() -> dict[str, Any] | None:
        status, _, text = fetch(gateway, f"{path}{separator}format=json", body)
        assert status == 200, text
        page: dict[str, Any] = json.loads(text)
        is_whole = bool(body) or page["scope"]["answered"] == page["scope"]["processes"]
        return page if is_whole else None

    page = eventually(document, f"all processes in {path}")
    assert page is not None
    return page


def review(uid: str, **changes: Any) -> bytes:
    return json.dumps({**POD, "request": {**POD["request"], "uid": uid, **changes}}).encode()


def add(path: str, value: object) -> dict[str, object]:
    return {"op": "add", "path": path, "value": value}


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.slow)])
def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> GatewayProcess:
    """A gateway with webhooks that change, deny and fail, which has answered some reviews."""
    worker = start_worker()
    failing = {"status": "UNAVAILABLE", "details": "<b>gone</b>", "webhook": {"failurePolicy": "Ignore"}}
    risky = {"webhook": {"sideEffects": "Some"}}
    elsewhere = {"webhook": {"objectSelector": {"matchLabels": {"team": "none"}}}}
    mutating = webhook_document(
        "mutate",
        "m",
        "pool",
        {"patch": [add("/metadata/annotations", {"a": "one"})]},
        {"patch": [add("/metadata/annotations", {"a": "two"})]},
        elsewhere,
    )
    denial = {"deny": {"message": "no <i>team</i>"}}
    validating = webhook_document("validate", "v", "pool", denial, failing, risky)
    # Only this version allows sideEffects Some.
    validating = validating.replace("admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1")
    (tmp_path / "c.yaml").write_text(pool_document("pool", worker.target) + mutating + validating)
    started = start_gateway(tmp_path, "--processes", str(request.param))
    for number in range(4):
        started.review("/mutate", review(f"m-{number}"))
        started.review("/validate", review(f"v-{number}"))
    eventually(lambda: len(found(started, "/decisions")["decisions"]) == 8, "all decisions")
    return started


@pytest.mark.parametrize(
    "gateway",
    [pytest.param(1, marks=pytest.mark.smoke), pytest.param(2, marks=pytest.mark.slow)],
    indirect=True,
)
def test_pages_answer_the_questions_after_a_denial(gateway: GatewayProcess) -> None:
    overview = found(gateway, "/")
    processes = overview["scope"]["processes"]
    assert overview["scope"]["answered"] == len(overview["processes"]) == processes
    hooks = {hook["name"]: hook for hook in overview["webhooks"]}
    assert list(hooks) == ["h0.m.test", "h1.m.test", "h2.m.test", "h0.v.test", "h1.v.test", "h2.v.test"]
    assert hooks["h0.v.test"]["total"]["denied"] == hooks["h0.v.test"]["recent"]["denied"] == 4
    assert hooks["h1.v.test"]["total"]["failedOpen"] == 4
    assert hooks["h2.m.test"]["total"]["count"] == 0
    assert overview["reviews"]["validate"]["total"] == {
        "count": 4,
        "denied": 4,
        "failedClosed": 0,
        "failedOpen": 0,
    }
    assert hooks["h0.m.test"]["recent"]["p50Ms"] is not None
    # A gateway waits two seconds for the connections to its workers, and then serves without them.
    endpoint = {"ready": processes}
    eventually(lambda: found(gateway, "/")["pools"][0]["endpoints"][0]["states"] == endpoint)
    assert overview["certificates"][0]["remainingSeconds"] > 0
    assert overview["configuration"]["digest"] == found(gateway, "/configz")["digest"]

    listed = found(gateway, "/decisions?outcome=Denied&webhook=h0.v.test&namespace=default&user=admin")
    assert {one["uid"] for one in listed["decisions"]} == {f"v-{number}" for number in range(4)}
    assert found(gateway, "/decisions?uid=v-9")["decisions"] == []
    assert found(gateway, "/decisions?limit=3")["decisions"] == found(gateway, "/decisions")["decisions"][:3]

    (burst,) = found(gateway, "/decisions?outcome=Denied")["groups"]
    assert (burst["webhook"], burst["namespace"], burst["count"]) == ("h0.v.test", "default", 4)
    own = found(gateway, "/webhook?phase=validate&configuration=v&name=h0.v.test")
    assert own["webhook"]["total"] == hooks["h0.v.test"]["total"]
    assert sum(own["webhook"]["timeline"]["denied"]) == sum(own["webhook"]["timeline"]["calls"]) == 4
    assert [group["count"] for group in own["groups"]] == [4]
    assert [(cell["namespace"], cell["denied"]) for cell in own["cells"]] == [("default", 4)]
    assert fetch(gateway, "/webhook?phase=mutate&configuration=v&name=h0.v.test")[0] == 404

    denied = found(gateway, "/decisions/v-2")["decision"]
    assert denied["message"] == "h0.v.test: no <i>team</i>"
    assert [one["outcome"] for one in denied["webhooks"]] == ["Denied", "FailedOpen", "Allowed"]
    changed = found(gateway, "/decisions/m-1")["decision"]
    assert changed["overwritten"] == {"/metadata/annotations/a": [0, 1]}
    assert changed["finalObject"]["metadata"]["annotations"]["a"] == "two"
    assert changed["notCalled"][0]["webhook"] == "h2.m.test"

    (cell,) = [one for one in found(gateway, "/namespaces")["cells"] if one["webhook"] == "h0.v.test"]
    assert (cell["namespace"], cell["denied"], cell["failedOpen"]) == ("default", 4, 0)

    for path in (*PATHS, "/decisions/v-2", "/decisions/m-1"):
        status, headers, html = fetch(gateway, path)
        assert status == 200, html
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "<i>team" not in html
        assert "<b>gone" not in html
    assert "no &lt;i&gt;team&lt;/i&gt;" in fetch(gateway, "/decisions/v-2")[2]
    status, _, html = fetch(gateway, "/decisions/none")
    assert status == 404
    assert "<h1>Not found</h1>" in html


def test_a_review_is_explained_by_a_dry_run_and_not_kept(gateway: GatewayProcess) -> None:
    before = found(gateway, "/")["reviews"]["validate"]["total"]
    pod = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: []}\n"
    mutating, validating = found(gateway, "/explain?namespace=shop&user=ann", pod)["decisions"]
    assert mutating["finalObject"]["metadata"]["annotations"] == {"a": "two"}
    assert (validating["user"], validating["namespace"], validating["dryRun"]) == ("ann", "shop", True)
    assert validating["outcome"] == "Denied"
    (left_out,) = [one for one in validating["notCalled"] if one["webhook"] == "h2.v.test"]
    assert "sideEffects Some allows no dry run" in left_out["reason"]
    assert found(gateway, "/")["reviews"]["validate"]["total"] == before
    assert len(found(gateway, "/decisions")["decisions"]) == 8

    form = urllib.parse.urlencode({"review": pod.decode(), "operation": "DELETE"}).encode()
    kind = "application/x-www-form-urlencoded"
    status, _, html = fetch(gateway, "/explain", form, Content_Type=kind)
    assert status == 200
    assert "DELETE Pod" in html
    assert fetch(gateway, "/explain", form, Content_Type=kind, Origin="http://evil.example")[0] == 403
    status, _, text = fetch(gateway, "/explain?format=json", b"a: b: c")
    assert status == 400
    assert json.loads(text)["error"].startswith("1:5: mapping values")


def test_explanations_are_bounded_in_rate(gateway: GatewayProcess) -> None:
    statuses = [fetch(gateway, "/explain?format=json", b"{}")[0] for _ in range(40)]
    assert 429 in statuses


def test_no_page_shows_data_of_secrets_or_tokens(
    tmp_path: Path, processes: ExitStack, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    hidden = [secrets.token_hex(16) for _ in range(6)]
    data, password, token, jwt, reader, annotation = hidden
    worker = start_worker()
    (tmp_path / "tokens").write_text(f"{token}\n")
    (tmp_path / "readers").write_text(f"ann:{reader}\n")
    settings = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "authentication": {"tokenFile": "tokens"},
        "pages": {"basicAuthFile": "readers"},
    }
    (tmp_path / "c.yaml").write_text(
        json.dumps(settings)
        + "\n---\n"
        + pool_document("pool", worker.target)
        + webhook_document("mutate", "m", "pool", {"label": "team"})
        + webhook_document("validate", "v", "pool", {"deny": {"message": "no"}})
    )
    gateway = start_gateway(tmp_path)
    authorization = f"Basic {base64.b64encode(f'ann:{reader}'.encode()).decode()}"
    assert fetch(gateway, "/")[0] == 401
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "labels": {},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
                    {"stringData": {"a": annotation}}
                )
            },
        },
        "data": {"a": base64.b64encode(data.encode()).decode()},
        "stringData": {"b": data},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {}},
        "spec": {
            "containers": [{"env": [{"name": "DB_PASSWORD", "value": password}], "args": [f"--token={jwt}"]}]
        },
    }
    connection = processes.enter_context(closing(gateway.connect()))
    for number, (kind, resource, found_object) in enumerate(
        (("Secret", "secrets", secret), ("Pod", "pods", pod))
    ):
        names = {
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": resource},
        }
        request = {**names, "requestKind": names["kind"], "requestResource": names["resource"]}
        body = review(f"s-{number}", object=found_object, name="s", **request)
        for path in ("/mutate", "/validate"):
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            assert response.status == 200
            response.read()

    def page(path: str, posted: bytes = b"") -> str:
        status, _, text = fetch(gateway, path, posted, Authorization=authorization)
        assert status == 200, text
        return text

    eventually(lambda: len(json.loads(page("/decisions?format=json"))["decisions"]) == 4, "all decisions")
    texts = [page(f"{path}{form}") for path in PATHS for form in ("", "?format=json")]
    texts += [page(f"/decisions/s-{number}{form}") for number in range(2) for form in ("", "?format=json")]
    texts += [
        page(f"/explain{form}", json.dumps(one).encode())
        for one in (secret, pod)
        for form in ("", "?format=json")
    ]
    everything = "\n".join(texts)
    for value in hidden:
        for form in (value, base64.b64encode(value.encode()).decode().rstrip("=")):
            assert form not in everything
    assert len(re.findall("redacted", everything)) > 10


@pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")
@pytest.mark.parametrize("count", ["1", "2"])
def test_without_credentials_pages_are_for_clients_over_loopback_and_the_probes_for_all(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, count: str
) -> None:
    """As in a pod: probes and metrics come to its address, and ``kubectl port-forward`` over its loopback."""
    with private_network():
        (tmp_path / "c.yaml").write_text(
            pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
        )
        gateway = start_gateway(tmp_path, "--admin-listen", "0.0.0.0:0", "--processes", count)
        for path in PATHS:
            assert fetch(gateway, path)[0] == 200
            status, _, text = fetch(gateway, path, Host="localhost", address=NODE_IP)
            assert status == 403
            assert "the pages are served over loopback only: use kubectl port-forward" in text
        for path in ("/livez", "/readyz", "/metrics"):
            assert fetch(gateway, path, address=NODE_IP)[0] == 200


def test_a_refused_configuration_is_shown_until_another_is_accepted(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    file = tmp_path / "c.yaml"
    good = pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", {})
    file.write_text(good)
    gateway = start_gateway(tmp_path)
    assert found(gateway, "/")["configuration"]["refused"] is None
    file.write_text(good.replace('"pool": "pool"', '"pool": "<pol>"'))
    refused = eventually(lambda: found(gateway, "/")["configuration"]["refused"], "the refusal")
    assert "clientConfig.worker.pool" in refused["problems"][0]["field"]
    assert "&lt;pol&gt;" in fetch(gateway, "/")[2]
    file.write_text(good + "\n")
    eventually(lambda: found(gateway, "/")["configuration"]["refused"] is None, "the new configuration")
