"""``replay --write-exceptions``: what is written, what is refused, and the law about what is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.merge.load import load
from tests.kit import call_command
from tests.replay.kit import configure, made_of, policy, recording, replay, review
from tests.replay.test_sources import event

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

NO_MARK = "!has(object.metadata.annotations) || !('{0}' in object.metadata.annotations)"
TEAM = {"labels": {"team": "team-shop"}, "name": "shop"}
DENIED: dict[str, Any] = {"allowed": False, "code": 403, "message": "p says no"}
BY_P = {"configuration": "p", "webhook": "p", "outcome": "Denied", "message": "p says no", "code": 403}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "p.yaml").write_text("".join(policy(name, NO_MARK.format(name)) for name in ("p", "q")))
    return folder


def reviews(*requests: Any, namespace: dict[str, Any] | None = None, **members: Any) -> list[dict[str, Any]]:
    return [review(one, namespace={"metadata": namespace or {"name": "shop"}}, **members) for one in requests]


def written(file: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one is not None]


def test_a_workload_with_all_that_is_made_from_it_is_one_exception_that_a_team_can_be_asked_about(
    tmp_path: Path, config: Path
) -> None:
    lines = [
        *reviews(*made_of("web", "shop", "nginx", p="x"), namespace=TEAM, time="2026-11-20T10:00:00.5Z"),
        *reviews(*made_of("api", "shop", "r.example/api:1", p="x"), time="2026-11-22T10:00:00Z"),
        *reviews(*made_of("old", "shop", "nginx"), *made_of("web", "pay", "nginx")),
    ]
    source, file = recording(tmp_path / "r.gz", *lines), tmp_path / "exceptions.yaml"
    found = replay(source, "--config", config, "--write-exceptions", file)
    assert found["writtenExceptions"] == {
        "file": str(file),
        "exceptions": 1,
        "denials": 8,
        "passes": 1,
        "namespaces": [{"namespace": "shop", "owner": "team-shop", "exceptions": 1, "denials": 8}],
        "problems": [],
    }
    (one,) = written(file)
    spec, users = one["spec"], "system:serviceaccount:kube-system:"
    assert one["metadata"]["namespace"] == "shop"
    assert one["metadata"]["name"].startswith("p-")
    assert spec["webhooks"] == ["p"]
    assert spec["match"] == {
        "owners": ["Deployment.apps/api", "Deployment.apps/web"],
        "users": ["ci", f"{users}deployment-controller", f"{users}replicaset-controller"],
        "kinds": ["Deployment.apps", "Pod", "ReplicaSet.apps"],
        "images": ["docker.io/library/nginx", "r.example/api"],
    }
    assert spec["owner"] == "team-shop"
    assert spec["reason"] == (
        "8 denials found by replay from 2026-11-20T10:00:00.5Z to 2026-11-22T10:00:00Z, such as shop-web-0"
    )
    assert "# Namespace shop, owner team-shop: 8 denials\n" in file.read_text()
    assert "#   2 Pod of Deployment.apps/web by " in file.read_text()
    assert "#   says: ValidatingAdmissionPolicy 'p'" in file.read_text()
    assert not load([config, file]).warnings
    again = replay(source, "--config", config, file)
    assert (again["newlyDenied"], again["newlyAllowed"], again["equal"]) == (0, 0, 16)
    done = call_command("replay", source, "--config", config, "--write-exceptions", tmp_path / "again.yaml")
    assert "        8  shop, owner team-shop: exceptions 1\n" in done.stdout
    assert (tmp_path / "again.yaml").read_bytes() == file.read_bytes()
    done = call_command("replay", source, "--config", config, "--write-exceptions", file)
    assert done.returncode == 2
    assert "exists, and its exceptions may be in use" in done.stderr


def test_nothing_is_written_without_denials_and_the_options_are_checked(tmp_path: Path, config: Path) -> None:
    source, file = recording(tmp_path / "r.gz", *reviews(*made_of("web", "shop", "nginx"))), tmp_path / "e"
    done = call_command("replay", source, "--config", config, "--write-exceptions", file)
    assert done.returncode == 0
    assert "exceptions: none are needed" in done.stdout
    assert not file.exists()
    for days in ("0", "367"):
        done = call_command("replay", source, "--config", config, "--exceptions-expire-after", days)
        assert (done.returncode, "1 to 366 days" in done.stderr) == (2, True)


def test_two_policies_are_covered_one_after_the_other(tmp_path: Path, config: Path) -> None:
    both = made_of("web", "shop", "nginx", p="x", q="x")
    one = made_of("api", "shop", "nginx", q="x")
    rest = made_of("old", "shop", "nginx", user="bob") * 5
    source, file = recording(tmp_path / "r.gz", *reviews(*both, *one, *rest)), tmp_path / "e.yaml"
    replay(source, "--config", config, "--write-exceptions", file)
    assert sorted(name for one in written(file) for name in one["spec"]["webhooks"]) == ["p", "q"]
    assert replay(source, "--config", config, file)["equal"] == 28


@pytest.mark.process
def test_a_webhook_that_is_reached_only_after_an_exception_is_covered_in_the_next_pass(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    script = {"deny": {"code": 403, "message": "no"}, "when": "bad"}
    config = configure(tmp_path / "new", start_worker().target, "mutate", script)
    (config / "p.yaml").write_text(policy("p", NO_MARK.format("p")))
    (found,) = made_of("web", "shop", "nginx", p="x")[:1]
    found["object"]["metadata"]["labels"] = {"bad": "x"}
    (tmp_path / "o.json").write_text(json.dumps(found["object"]))
    source, file = ("--objects", tmp_path / "o.json"), tmp_path / "e.yaml"
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
    assert replay(*source, "--config", config, *options)["writtenExceptions"]["passes"] == 2
    (one,) = written(file)
    assert one["spec"]["webhooks"] == ["h0.v.test", "p"]
    assert replay(*source, "--config", config, file)["equal"] == 1


@pytest.mark.process
def test_a_webhook_that_fails_gets_no_exception(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "new", start_worker().target, "validate", {"status": "UNAVAILABLE"})
    (config / "p.yaml").write_text(policy("p", NO_MARK.format("p")))
    requests = made_of("web", "shop", "nginx", p="x")[:1]
    source, file = recording(tmp_path / "r.gz", *reviews(*requests)), tmp_path / "e.yaml"
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
    done = call_command("replay", source, "--config", config, *options)
    assert done.returncode == 1
    assert "h0.v.test failed for 1 reviews that are newly denied: what it decides is not known" in done.stderr
    assert not file.exists()


def test_a_cover_of_most_of_the_traffic_is_refused(tmp_path: Path, config: Path) -> None:
    lines = reviews(*made_of("web", "shop", "nginx", p="x"), *made_of("api", "shop", "nginx"))
    source, file = recording(tmp_path / "r.gz", *lines), tmp_path / "e.yaml"
    options = ("--write-exceptions", file, "--exceptions-max-percent", "49")
    done = call_command("replay", source, "--config", config, *options)
    assert done.returncode == 1
    assert (
        "p: exceptions would cover 4 of the 8 requests that it sees, more than 49 %: change the policy"
        in (done.stderr)
    )
    assert not file.exists()


def test_what_cannot_be_told_from_requests_that_were_denied_before_is_refused(
    tmp_path: Path, config: Path
) -> None:
    requests = made_of("web", "shop", "nginx", p="x")
    lines = [*reviews(*requests), *reviews(requests[0], webhooks=[BY_P], **DENIED)]
    source, file = recording(tmp_path / "r.gz", *lines), tmp_path / "e.yaml"
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
    done = call_command("replay", source, "--config", config, *options)
    assert done.returncode == 1
    assert "Deployment.apps/web by ci in shop: an exception would also allow requests that were denied" in (
        done.stderr
    )
    assert not file.exists()


def test_objects_without_a_namespace_are_refused_with_advice(tmp_path: Path, config: Path) -> None:
    role = {"group": "rbac.authorization.k8s.io", "version": "v1"}
    request = {
        **made_of("web", "shop", "nginx", p="x")[0],
        "kind": {**role, "kind": "ClusterRole"},
        "resource": {**role, "resource": "clusterroles"},
        "namespace": "",
    }
    source, file = recording(tmp_path / "r.gz", *reviews(request)), tmp_path / "e.yaml"
    done = call_command("replay", source, "--config", config, "--write-exceptions", file)
    assert done.returncode == 1
    assert "ClusterRole.rbac.authorization.k8s.io/web by ci in (no namespace)" in done.stderr
    assert "write a ClusterPolicyException" in done.stderr


def test_several_sources_have_exceptions_in_one_file(tmp_path: Path, config: Path) -> None:
    source = recording(tmp_path / "r.gz", *reviews(*made_of("web", "shop", "nginx", p="x")))
    stored = made_of("cron", "pay", "nginx", p="x")[0]["object"]
    (tmp_path / "o.json").write_text(json.dumps({"items": [stored]}))
    sources = (source, "--objects", tmp_path / "o.json")
    file = tmp_path / "e.yaml"
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
    found = replay(*sources, "--config", config, *options)
    assert found["comparedWith"] == (
        "the recorded answers, and with an admission of each object, which has no recorded answer"
    )
    by_namespace = {one["metadata"]["namespace"]: one["spec"]["match"] for one in written(file)}
    assert by_namespace["shop"]["owners"] == ["Deployment.apps/web"]
    assert by_namespace["pay"]["names"] == ["cron"]
    again = replay(*sources, "--config", config, file)
    assert (again["newlyDenied"], again["replayed"]) == (0, 5)


def test_objects_have_no_user_and_what_controllers_made_has_theirs(tmp_path: Path, config: Path) -> None:
    objects = [one["object"] for one in made_of("web", "shop", "nginx", p="x")]
    for number, one in enumerate(objects):
        one["metadata"].setdefault("name", f"web-5f4d-{number}")
    (tmp_path / "o.json").write_text(json.dumps({"items": objects}))
    for config_file in ("a", "b"):
        file = tmp_path / f"{config_file}.yaml"
        options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
        replay("--objects", tmp_path / "o.json", "--config", config, *options)
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()
    assert replay("--objects", tmp_path / "o.json", "--config", config, file)["newlyDenied"] == 0
    by_kind = {tuple(one["spec"]["match"]["kinds"]): one["spec"]["match"] for one in written(file)}
    assert by_kind["Deployment.apps",] == {
        "names": ["web"],
        "kinds": ["Deployment.apps"],
        "images": ["docker.io/library/nginx"],
    }
    owned = by_kind["Pod", "ReplicaSet.apps"]
    assert owned["owners"] == ["Deployment.apps/web"]
    assert len(owned["users"]) == 2
    assert not load([config, file]).warnings


def test_an_audit_log_and_two_configurations(tmp_path: Path, config: Path) -> None:
    log = tmp_path / "audit.log"
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {"p": "x"}}}
    log.write_text(json.dumps(event(requestObject=bad, user={"username": "ann"})))
    old = tmp_path / "old"
    old.mkdir()
    (old / "p.yaml").write_text(policy("p", "true"))
    for more in ((), ("--against", old)):
        file = tmp_path / f"e{len(more)}.yaml"
        options = ("--write-exceptions", file, "--exceptions-max-percent", "100", *more)
        replay("--audit-log", log, "--config", config, *options)
        (one,) = written(file)
        assert one["spec"]["match"]["users"] == ["ann"]
        assert replay("--audit-log", log, "--config", config, file, *more)["equal"] == 1


NAMES = ("web", "api")
requests = st.builds(
    lambda name, namespace, image, user, marks, which, before: (
        {**made_of(name, namespace, image, user, **dict.fromkeys(marks, "x"))[which], "uid": "u"},
        before,
    ),
    st.sampled_from(NAMES),
    st.sampled_from(["shop", "pay"]),
    st.sampled_from(["nginx", "r.example/api:1", "not an image:"]),
    st.sampled_from(["ann", "bob", "system:admin"]),
    st.sets(st.sampled_from("pq")),
    st.integers(0, 3),
    st.booleans(),
)


@given(drawn=st.lists(requests, min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_the_law_holds_or_nothing_is_written(
    drawn: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With what is written nothing is newly denied, and nothing else is decided otherwise."""
    folder = tmp_path_factory.mktemp("law")
    config, file = folder / "p.yaml", folder / "e.yaml"
    config.write_text("".join(policy(name, NO_MARK.format(name)) for name in ("p", "q")))
    lines = [
        review(request, *([BY_P] if was_denied else []), **(DENIED if was_denied else {}))
        for request, was_denied in drawn
    ]
    source = recording(folder / "r.gz", *lines)
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100", "--json")
    done = call_command("replay", source, "--config", config, *options)
    first = json.loads(done.stdout)
    if not file.exists():
        assert bool(first["newlyDenied"]) == bool(first["writtenExceptions"]["problems"])
        assert done.returncode == bool(first["newlyDenied"])
        return
    again = replay(source, "--config", config, file)
    assert again["newlyDenied"] == 0
    assert again["newlyAllowed"] == first["newlyAllowed"]
    assert again["equal"] == first["equal"] + first["newlyDenied"]
    assert not load([config, file]).warnings


PLACES = [
    ("uid",),
    ("name",),
    ("namespace",),
    ("operation",),
    ("userInfo",),
    ("userInfo", "username"),
    ("kind", "kind"),
    ("kind", "group"),
    ("object", "metadata"),
    *(("object", "metadata", name) for name in ("name", "generateName", "labels", "ownerReferences")),
    ("object", "spec"),
    ("object", "spec", "containers"),
    ("oldObject",),
]
VALUES: list[Any] = [
    *(None, 0, 1.5, True, "", "*", "a*", "\0", "x" * 5000, "\n---\n", "Pod/x", "web", "CREATE", "UPDATE"),
    *([], {}, [1], {"a": 1}, [[[]]], [{"controller": True}], [{"image": "A/b"}], [{"image": "nginx"}] * 300),
]


@given(
    drawn=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(VALUES)), max_size=3),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_document_is_covered_or_left_with_a_reason(
    drawn: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    config, file = folder / "p.yaml", folder / "e.yaml"
    config.write_text(policy("p", NO_MARK.format("p")))
    requests = []
    for which, changes in drawn:
        request = made_of("web", "shop", "nginx", p="x")[which]
        for (*path, name), value in changes:
            at: Any = request
            for part in path:
                at = at.get(part) if isinstance(at, dict) else None
            if isinstance(at, dict):
                at[name] = value
        requests.append(request)
    source = recording(folder / "r.gz", *reviews(*requests))
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
    done = call_command("replay", source, "--config", config, *options)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert "do not cover" not in done.stderr
    assert "are not valid" not in done.stderr
    if file.exists():
        assert replay(source, "--config", config, file)["newlyDenied"] == 0
        assert not load([config, file]).warnings


EVIL = "x\n---\nkind: Evil\n# \u2028\u0085\u202e: {a: [b"


def test_texts_of_a_recording_stay_in_their_places(tmp_path: Path, config: Path) -> None:
    (good,) = made_of("web", "shop", "nginx", p=EVIL)[:1]
    requests = [
        {**good, "uid": EVIL},
        {**good, "userInfo": {"username": "yes # no: 'a'\\"}},
        {**good, "userInfo": {"username": "null"}, "name": "1e3"},
    ]
    source, file = (
        recording(tmp_path / "r.gz", *reviews(*requests, namespace={"labels": {"team": EVIL}})),
        (tmp_path / "e.yaml"),
    )
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
    replay(source, "--config", config, *options)
    (one,) = written(file)
    assert one["kind"] == "PolicyException"
    assert one["spec"]["match"]["users"] == ["ci", "null", "yes # no: 'a'\\"]
    assert one["spec"]["match"]["owners"] == ["Deployment.apps/1e3", "Deployment.apps/web"]
    assert one["spec"]["owner"] == "not known, namespace shop"
    assert file.read_text().isascii()
    assert replay(source, "--config", config, file)["equal"] == 3
    assert not load([config, file]).warnings


@pytest.mark.parametrize(
    "change",
    [
        {"userInfo": {"username": "a*"}},
        {"userInfo": {"username": "a\nb"}},
        {"userInfo": {"username": "a" * 513}},
        {"userInfo": {}},
        {"userInfo": {"username": "redacted-0123456789abcdef"}},
        {"kind": {"group": "apps", "version": "v1", "kind": "De:ployment"}},
        {"namespace": "a b"},
    ],
)
def test_what_an_exception_cannot_name_is_not_covered_by_a_broader_one(
    change: dict[str, Any], tmp_path: Path, config: Path
) -> None:
    request = {**made_of("web", "shop", "nginx", p="x")[0], **change}
    source, file = recording(tmp_path / "r.gz", *reviews(request)), tmp_path / "e.yaml"
    options = ("--write-exceptions", file, "--exceptions-max-percent", "100")
    done = call_command("replay", source, "--config", config, *options)
    assert done.returncode == 1
    assert "no exceptions are written: p: 1 of " in done.stderr
    assert "Traceback" not in done.stderr
    assert not file.exists()


def test_an_exception_for_generated_names_does_not_cover_names_that_were_denied_before(
    tmp_path: Path, config: Path
) -> None:
    pod = made_of("web", "shop", "nginx", user="ann", p="x")[3]
    metadata = {"namespace": "shop", "annotations": {"p": "x"}}
    by_ann = {**pod, "userInfo": {"username": "ann"}}
    generated = {**by_ann, "object": {**pod["object"], "metadata": {**metadata, "generateName": "web-"}}}
    named = {
        **by_ann,
        "name": "web-1",
        "object": {**pod["object"], "metadata": {**metadata, "name": "web-1"}},
    }
    file = tmp_path / "e.yaml"
    options = ("--config", config, "--write-exceptions", file, "--exceptions-max-percent", "100")
    source = recording(tmp_path / "a.gz", *reviews(generated), *reviews(named, webhooks=[BY_P], **DENIED))
    assert "no exceptions are written" in call_command("replay", source, *options).stderr
    assert not file.exists()
    replay(recording(tmp_path / "b.gz", *reviews(generated, named)), *options)
    assert written(file)[0]["spec"]["match"]["owners"] == ["Pod/web-*"]


def test_a_second_source_adds_to_the_exceptions_of_the_first(tmp_path: Path, config: Path) -> None:
    requests = made_of("web", "shop", "nginx", p="x")
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    options = ("--exceptions-max-percent", "100")
    source = recording(tmp_path / "r.gz", *reviews(*requests, time="2026-11-20T10:00:00Z"))
    replay(source, "--config", config, "--write-exceptions", first, *options)
    assert "# Seen: requests from 2026-11-20T10:00:00Z to 2026-11-20T10:00:00Z.\n" in first.read_text()
    (tmp_path / "o.json").write_text(json.dumps(made_of("night", "shop", "nginx", p="x")[0]["object"]))
    objects = ("--objects", tmp_path / "o.json")
    replay(*objects, "--config", config, first, "--write-exceptions", second, *options)
    assert written(second)[0]["spec"]["match"]["names"] == ["night"]
    for again in ((source,), objects):
        assert replay(*again, "--config", config, first, second)["newlyDenied"] == 0


def test_a_folder_that_does_not_exist_is_found_before_the_replay(tmp_path: Path, config: Path) -> None:
    source = recording(tmp_path / "r.gz", *reviews(*made_of("web", "shop", "nginx")))
    done = call_command(
        "replay", source, "--config", config, "--write-exceptions", tmp_path / "no" / "e.yaml"
    )
    assert (done.returncode, "is not a folder" in done.stderr) == (2, True)
