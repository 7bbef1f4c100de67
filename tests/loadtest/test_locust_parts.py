"""The requests of the Locust users, the outcomes of answers, and the verdict on a run; without Locust."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.locust_options import CORPUS, Target, check
from loadtest.locust_requests import Document, creates, read_corpus, reviews
from loadtest.locust_verdict import (
    Counts,
    Found,
    Limits,
    Outcome,
    Plan,
    Schedule,
    of_create,
    of_review,
    verdict,
)
from tests.kit import REVIEWS

if TYPE_CHECKING:
    from pathlib import Path

    import trustme


def recorded(name: str) -> Document:
    return Document(name, json.loads((REVIEWS / f"{name}.json").read_bytes()))


def nothing(path: str) -> dict[str, Any]:
    raise AssertionError(f"{path} is not needed")


# -- corpus ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("review", "path", "prefix"),
    [
        ("pod-create-mutate", "/api/v1/namespaces/default/pods", "p1-"),
        ("deployment-create", "/apis/apps/v1/namespaces/default/deployments", "d1-"),
        ("namespace-create", "/api/v1/namespaces", "team-a-"),
        ("node-create", "/api/v1/nodes", None),
        ("widget-create", "/apis/example.com/v1/namespaces/default/widgets", "w1-"),
    ],
)
def test_a_recorded_create_is_repeated_with_a_generated_name(
    review: str, path: str, prefix: str | None
) -> None:
    (found,), left_out = creates([recorded(review)], None, nothing)
    assert left_out == []
    assert found.path == path
    body = json.loads(found.body)
    assert body["metadata"]["generateName"] == found.prefix
    assert prefix in (None, found.prefix)
    assert {"name", "uid", "creationTimestamp", "managedFields", "generation"}.isdisjoint(body["metadata"])
    original = recorded(review).content["request"]["object"]
    assert {**body, "metadata": None} == {**original, "metadata": None}
    for member in ("labels", "annotations"):
        assert body["metadata"].get(member) == original["metadata"].get(member)


def test_another_namespace_is_used_for_namespaced_objects_alone() -> None:
    found, _ = creates([recorded("pod-create-mutate"), recorded("node-create")], "other", nothing)
    assert [create.path for create in found] == ["/api/v1/namespaces/other/pods", "/api/v1/nodes"]
    assert [json.loads(create.body)["metadata"].get("namespace") for create in found] == ["other", None]


@pytest.mark.parametrize(
    ("review", "problem"),
    [
        ("pod-update-validate", "pod-update-validate.json: its operation is UPDATE, not CREATE"),
        (
            "podexecoptions-exec-connect",
            "podexecoptions-exec-connect.json: its operation is CONNECT, not CREATE",
        ),
        ("eviction-eviction-create", "eviction-eviction-create.json: its subresource is eviction"),
    ],
)
def test_a_review_that_creates_no_object_is_left_out_with_the_reason(review: str, problem: str) -> None:
    found, left_out = creates([recorded(review), recorded("pod-create-mutate")], None, nothing)
    assert [create.name for create in found] == ["pod-create-mutate"]
    assert left_out == [problem]
    with pytest.raises(ValueError, match="no document of the corpus can be created: " + problem):
        creates([recorded(review)], None, nothing)


GADGETS = {
    "resources": [
        {"name": "gadgets/status", "kind": "Gadget", "namespaced": True},
        {"name": "gadgets", "kind": "Gadget", "namespaced": True},
        {"name": "racks", "kind": "Rack", "namespaced": False},
    ]
}


@pytest.mark.parametrize(
    ("api_version", "kind", "metadata", "namespace", "path"),
    [
        ("v1", "Gadget", {}, None, "/api/v1/namespaces/default/gadgets"),
        ("x.test/v2", "Gadget", {"namespace": "a"}, None, "/apis/x.test/v2/namespaces/a/gadgets"),
        ("x.test/v2", "Gadget", {"namespace": "a"}, "b", "/apis/x.test/v2/namespaces/b/gadgets"),
        ("x.test/v2", "Rack", None, "b", "/apis/x.test/v2/racks"),
    ],
)
def test_an_object_is_created_at_the_path_of_its_discovered_resource(
    api_version: str, kind: str, metadata: dict[str, str] | None, namespace: str | None, path: str
) -> None:
    requested = []

    def discover(path: str) -> dict[str, Any]:
        requested.append(path)
        return GADGETS

    content = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    (found,), _ = creates([Document("it", content)], namespace, discover)
    assert (found.path, found.prefix) == (path, "loadtest-")
    assert requested == [f"/api/{api_version}" if api_version == "v1" else f"/apis/{api_version}"]


def test_an_object_of_an_unknown_kind_is_an_error_that_names_it() -> None:
    with pytest.raises(
        ValueError, match=r"it\.json: the API server has no resource for a Gizmo in x\.test/v1"
    ):
        creates([Document("it", {"apiVersion": "x.test/v1", "kind": "Gizmo"})], None, lambda _: GADGETS)


def test_a_review_is_sent_unchanged_except_for_a_new_uid() -> None:
    document = recorded("pod-create-mutate")
    first, second = reviews([document], ["/validate", "/mutate/mine"])
    assert (first.path, second.path) == ("/validate", "/mutate/mine")
    assert (first.name, second.name) == ("/validate pod-create-mutate", "/mutate/mine pod-create-mutate")
    sent = [first.body() for _ in range(2)]
    assert sent[0][1] != sent[1][1]
    for body, uid in sent:
        expected = {**document.content, "request": {**document.content["request"], "uid": uid}}
        assert json.loads(body) == expected


def test_an_object_is_not_sent_to_a_gateway() -> None:
    with pytest.raises(ValueError, match=r"it\.json: expected an AdmissionReview, found a Pod"):
        reviews([Document("it", {"apiVersion": "v1", "kind": "Pod"})], ["/validate"])


def test_the_corpus_of_the_repository_can_be_sent_to_both() -> None:
    documents = read_corpus(CORPUS)
    assert len(documents) > 1
    found, left_out = creates(documents, None, nothing)
    assert (len(found), left_out) == (len(documents), [])
    assert len(reviews(documents, ["/validate"])) == len(documents)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", r"one\.json: "),
        ("[]", r"one\.json: expected an AdmissionReview or an object, with apiVersion and kind"),
        ('{"request": {}}', r"one\.json: expected an AdmissionReview or an object"),
        (
            '{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {}}',
            r"one\.json: expected an AdmissionReview with a request",
        ),
        (None, r"expected AdmissionReviews in files named \*\.json, found none"),
    ],
)
def test_a_corpus_that_cannot_be_sent_is_an_error_that_names_the_file(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    if text is not None:
        (tmp_path / "one.json").write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_corpus(tmp_path)


# -- answers --------------------------------------------------------------------------------------


def answer(**response: object) -> bytes:
    return json.dumps({"response": {"uid": "u", **response}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, answer(allowed=True), Outcome()),
        (200, answer(allowed=False), Outcome(denied=True)),
        (200, answer(allowed=False, status={"code": 403}), Outcome(denied=True)),
        (200, answer(allowed=False, status={"code": 500}), Outcome("failed closed, code 500")),
        (200, answer(allowed=True, uid="v"), Outcome("the uid is not that of the review")),
        (200, b'{"response": []}', Outcome("not an AdmissionReview")),
        (200, b"", Outcome("not an AdmissionReview")),
        (503, answer(allowed=True), Outcome("HTTP status 503")),
    ],
)
def test_a_gateways_answer_is_a_verdict_or_a_failure(status: int, body: bytes, outcome: Outcome) -> None:
    assert of_review(status, body, "u") == outcome


def status_of(message: str) -> bytes:
    return json.dumps({"kind": "Status", "message": message}).encode()


DENIED = 'admission webhook "policies.gateway.test" denied the request'


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (201, b"{}", Outcome()),
        (403, status_of(f"{DENIED}: no"), Outcome(denied=True)),
        (400, status_of(f"{DENIED} without explanation"), Outcome(denied=True)),
        (500, status_of(f"{DENIED}: worker gone"), Outcome(f"HTTP status 500: {DENIED}: worker gone")),
        (
            500,
            status_of('Internal error occurred: failed calling webhook "x"'),
            Outcome('HTTP status 500: Internal error occurred: failed calling webhook "x"'),
        ),
        (
            403,
            status_of('pods "web-x7k2p" is forbidden: exceeded quota'),
            Outcome('HTTP status 403: pods "web-*" is forbidden: exceeded quota'),
        ),
        (
            422,
            status_of("must be 'dbe678e5-e7d1-4c0e-9d5e-0123456789ab'"),
            Outcome("HTTP status 422: must be '*'"),
        ),
        (401, b"Unauthorized", Outcome("HTTP status 401: Unauthorized")),
        (429, b"", Outcome("HTTP status 429: ")),
    ],
)
def test_an_api_servers_answer_is_a_verdict_or_a_failure(status: int, body: bytes, outcome: Outcome) -> None:
    assert of_create(status, body, "web-") == outcome


# -- plan and verdict -----------------------------------------------------------------------------


@given(st.integers(1, 1000), st.integers(1, 60), st.integers(0, 1000))
def test_the_plan_of_a_user_that_falls_behind_does_not_change(rate: int, lasts: int, sent: int) -> None:
    schedule = Schedule(rate, 0.0, sent=min(sent, rate * lasts))
    assert schedule.planned(lasts) == rate * lasts


@given(st.floats(0.1, 1000), st.floats(0, 1e6), st.floats(0, 1000))
def test_a_user_that_keeps_its_schedule_has_sent_all_planned_requests(
    rate: float, start: float, lasts: float
) -> None:
    # One at once and one after each period, up to the end.
    schedule = Schedule(rate, start, sent=int((start + lasts - start) * rate) + 1)
    assert schedule.planned(start + lasts) == schedule.sent


def test_nothing_is_planned_for_a_user_after_its_end() -> None:
    plan = Plan()
    first, second = plan.join(10.0, 100.0), plan.join(10.0, 101.0)
    first.end = 101.0
    plan.close(102.0)
    assert (first.planned(200.0), second.planned(200.0)) == (10, 10)
    assert first.end == 101.0


def test_a_master_counts_the_last_report_of_each_worker() -> None:
    master, workers = Plan(), {"a": Plan(), "b": Plan()}
    for name, worker in workers.items():
        worker.join(10.0, 0.0).sent = 7
        for now in (0.5, 1.0):
            worker.denied += 1
            master.receive(name, worker.report(now))
    assert master.counts(1.0) == Counts(planned=20, sent=14, denied=4)
    master.clear()
    assert master.counts(1.0) == Counts()


LIMITS = Limits(p99_ms=250.0, failure_ratio=0.01, sent_ratio=0.95)


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        (Found(Counts(1000, 950), 950, 9, 250.0), [True, True, True]),
        (Found(Counts(1000, 949), 949, 0, 1.0), [False, True, True]),
        (Found(Counts(1000, 1000), 1000, 11, 1.0), [True, False, True]),
        (Found(Counts(1000, 1000), 1000, 0, 250.1), [True, True, False]),
        (Found(Counts(10, 10), 0, 0, 0.0), [True, False, False]),
        (Found(Counts(), 0, 0, 0.0), [False, False, False]),
    ],
)
def test_a_run_passes_up_to_its_limits_and_fails_without_answers(found: Found, passed: list[bool]) -> None:
    lines = verdict(found, LIMITS)
    assert [line.passed for line in lines] == passed
    assert [str(line)[:5] for line in lines] == ["pass:" if ok else "FAIL:" for ok in passed]


def test_the_verdict_names_results_and_limits() -> None:
    lines = verdict(Found(Counts(1000, 900, denied=40), 899, 9, 12.5), LIMITS)
    behind = "; too much load, so the percentiles are too good"
    assert [line.text for line in lines] == [
        f"900 of 1000 planned requests were sent, 90.00% (at least 95.00%){behind}",
        "9 of 899 answers are failures, 1.00% (at most 1.00%); 40 are denials",
        "p99 12.5 ms (at most 250 ms)",
    ]


# -- options and access ---------------------------------------------------------------------------


def options(**given: object) -> argparse.Namespace:
    known = {"host": "https://127.0.0.1:1/", "via": "direct", "path": None, "namespace": None}
    access = dict.fromkeys(("ca_file", "insecure", "token_file", "client_cert", "client_key"))
    return argparse.Namespace(**{**known, **access, "persist": False, "stop_after": None, **given})


def test_an_api_server_is_verified_by_default_and_a_gateway_only_with_an_authority(
    tmp_path: Path, authority: trustme.CA
) -> None:
    ca_file = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(ca_file))
    assert [
        Target.of(options(via=via, **given)).verify
        for via in ("direct", "apiserver")
        for given in ({}, {"ca_file": str(ca_file)}, {"insecure": True})
    ] == [False, True, False, True, True, False]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"via": "apiserver", "path": ["/validate"]}, "--path is for --via direct"),
        ({"namespace": "a"}, "--namespace and --persist are for --via apiserver"),
        ({"persist": True}, "--namespace and --persist are for --via apiserver"),
        ({"via": "apiserver", "persist": True, "distributed": True}, "need a run of one process"),
        ({"stop_after": 5, "distributed": True}, "need a run of one process"),
        ({"host": None}, "expected --host https://HOST:PORT"),
        ({"client_cert": "a.crt"}, "expected --client-cert and --client-key together"),
        ({"ca_file": "a.crt", "insecure": True}, "expected --ca-file or --insecure, found both"),
        ({"ca_file": "no-such.crt"}, "--ca-file no-such.crt: "),
        ({"client_cert": "no-such.crt", "client_key": "no-such.key"}, "--client-cert no-such.crt: "),
        ({"token_file": "no-such"}, "--token-file: .*no-such"),
    ],
)
def test_an_unusable_option_is_an_error_that_names_it(given: dict[str, object], problem: str) -> None:
    def use(found: argparse.Namespace) -> Target:
        check(found, distributed=bool(given.get("distributed")))
        return Target.of(found)

    with pytest.raises(ValueError, match=problem):
        use(options(**given))


def test_a_token_is_one_word(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    assert Target.of(options(token_file=str(token))).headers["Authorization"] == "Bearer secret"
    token.write_text("two words\n")
    with pytest.raises(ValueError, match="expected one bearer token"):
        Target.of(options(token_file=str(token)))
