"""What recordings, audit logs and files of objects are replayed as, and what is left out with a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import GatewayError
from gateway.tools.replay.audit_log import AuditLog
from gateway.tools.replay.cases import Found
from gateway.tools.replay.objects import ObjectFiles
from gateway.tools.replay.recordings import REDACTED, Recordings
from tests.decisions.test_redaction import secret
from tests.replay.kit import HEADER, recording, review

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.tools.replay.cases import Case


def event(verb: str = "create", code: int = 201, **members: Any) -> dict[str, Any]:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}}
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "a-1",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": "ann", "groups": ["devs"]},
        "objectRef": {"resource": "pods", "namespace": "default", "name": "web", "apiVersion": "v1"},
        "responseStatus": {"code": code},
        "requestObject": pod,
        "responseObject": {**pod, "status": {}},
        **members,
    }


def audited(tmp_path: Path, *events: object, **options: bool) -> tuple[list[Case], Found]:
    path, found = tmp_path / "audit.log", Found()
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in events))
    return list(AuditLog([path], **options).cases(found)), found


def test_a_creation_in_an_audit_log_is_replayed_as_it_was_sent(tmp_path: Path) -> None:
    ((case,), found) = audited(tmp_path, event(), event(stage="RequestReceived"), event("list"))
    assert case.request["object"] == event()["requestObject"]
    assert case.request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert case.request["userInfo"] == {"username": "ann", "groups": ["devs"]}
    assert case.expected is not None
    assert case.expected.allowed
    assert not found.left_out
    assert found.read == 1.0


def test_a_denial_by_a_webhook_is_known_and_other_rejections_are_left_out(tmp_path: Path) -> None:
    denied = {"code": 403, "message": 'admission webhook "a.b.c" denied the request: no'}
    cases, found = audited(tmp_path, event(responseStatus=denied), event(code=409))
    assert [one.expected is not None and one.expected.allowed for one in cases] == [False]
    assert list(found.left_out) == ["the API server rejected the request for another reason than a webhook"]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (event("update", 200), "an update: an audit log does not have the old object"),
        (event("patch", 200), "an update: an audit log does not have the old object"),
        (event("delete", 200), "a deletion"),
        (event("connect", 200), "a request without an object"),
        (event(requestObject=None, level="Metadata"), "the audit level Metadata leaves out the object"),
        (event(objectRef={}), "the event lacks the kind of its object, or its resource"),
        ("{", "the line of the audit log is not an event"),
        ("[]", "the line of the audit log is not an event"),
    ],
)
def test_what_an_audit_log_cannot_tell_is_left_out_with_the_reason(
    tmp_path: Path, one: object, reason: str
) -> None:
    cases, found = audited(tmp_path, one)
    assert not cases
    ((shown, number),) = found.left_out.items()
    assert shown.startswith(reason)
    assert number == 1


def test_updates_are_replayed_as_creations_only_where_that_is_wanted(tmp_path: Path) -> None:
    (case,), _ = audited(tmp_path, event("patch", 200, requestObject={"a": 1}), updates_as_creates=True)
    assert case.request["operation"] == "CREATE"
    assert case.request["object"] == event()["responseObject"]
    assert "it was an update" in case.notes[0]


def test_objects_of_files_and_lists_are_replayed_as_creations(tmp_path: Path) -> None:
    folder = tmp_path / "below" / "deeper"
    folder.mkdir(parents=True)
    metadata = {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}}
    (folder / "a.yaml").write_text(json.dumps(pod) + "\n---\n" + json.dumps({"kind": "Nothing"}) + "\n---\n")
    (folder / "b.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [pod, pod, 1]}))
    (folder / "c.txt").write_text("no object")
    found = Found()
    cases = list(ObjectFiles([tmp_path]).cases(found))
    assert len(cases) == 3
    assert cases[0].request["object"] == {
        **{name: value for name, value in pod.items() if name != "status"},
        "metadata": {"name": "a", "namespace": "shop", "labels": {"x": "y"}},
    }
    assert cases[0].request["namespace"] == "shop"
    assert found.left_out == {"a document that is not a complete object": 2}


def test_the_part_that_was_read_grows_with_each_object_of_a_file(tmp_path: Path) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{n}"}} for n in range(20)]
    inner = {"kind": "List", "items": pods[10:]}
    (tmp_path / "a.json").write_text(json.dumps({"kind": "List", "items": [*pods[:10], inner]}))
    (tmp_path / "b.yaml").write_text("---\n".join(json.dumps(pod) + "\n" for pod in pods))
    found = Found()
    parts = [found.read for _ in ObjectFiles([tmp_path]).cases(found)]
    assert len(parts) == 40
    assert parts == sorted(set(parts))
    assert (parts[0], parts[20]) == (0.0, 0.5)


def test_a_file_that_is_no_yaml_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(GatewayError, match=r"/a\.yaml:2:1: did not find"):
        list(ObjectFiles([tmp_path]).cases(Found()))


def test_a_recording_has_namespace_and_answer(tmp_path: Path) -> None:
    lines = [
        review(),
        review(redacted=True, namespace=None, path="/validate.fail"),
        {"type": "dropped", "number": 3},
    ]
    recording(tmp_path / "b.jsonl.gz", *lines)
    found = Found()
    first, second = Recordings([tmp_path], ()).cases(found)
    assert first.namespace is not None
    assert first.namespace.labels == {
        "team": "a",
        "kubernetes.io/metadata.name": "default",
    }
    assert (second.namespace, second.path, second.notes) == (None, "/validate.fail", (REDACTED,))
    assert "3 reviews were dropped" in found.problems[0]


@pytest.mark.parametrize(
    "damage", [{"webhooks": 1}, {"webhooks": [{}]}, {"warnings": None}, {"code": "x"}, {"webhooks": [1]}]
)
def test_damaged_lines_and_files_are_counted(tmp_path: Path, damage: dict[str, Any]) -> None:
    whole = recording(
        tmp_path / "a.gz", review(), review(**damage), {"type": "review"}, review()
    ).read_bytes()
    (tmp_path / "a.gz").write_bytes(whole[:-20])
    found = Found()
    cases = list(Recordings([tmp_path / "a.gz"], ()).cases(found))
    assert len(cases) <= 2
    assert found.left_out["the line of the recording is damaged"] <= 3
    assert "truncated" in found.problems[0]


def test_another_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(json.dumps(secret()))
    with pytest.raises(GatewayError, match="not a recording"):
        list(Recordings([tmp_path / "a"], ()).cases(Found()))
    (tmp_path / "b").write_bytes(HEADER)
    assert not list(Recordings([tmp_path / "b"], ()).cases(Found()))
