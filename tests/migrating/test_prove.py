"""``admission-gateway migrate prove``: an old engine over HTTPS, and the configuration in its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.offline.message_lines import lines_of
from tests.kit import call_command
from tests.migrating.kit import answer, new_configuration, old_engine, pod, prove, write
from tests.replay.kit import recording, review

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.migrating.kit import OldEngine

    Json = dict[str, Any]

pytestmark = pytest.mark.process

NAMESPACE = {"metadata": {"name": "shop", "labels": {"tier": "prod"}}}
LABELS: list[dict[str, str]] = [{}, {"owner": "a"}, {"cost": "1"}, {"owner": "a", "cost": "1"}, {"old": "x"}]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[OldEngine]:
    with old_engine(tmp_path) as engine:
        write(tmp_path / "old" / "registered.yaml", *engine.registrations())
        yield engine


def recorded(folder: Path, reviews: int = 20, **labels: str) -> Path:
    """A recording of creations in both phases, as another configuration answered them."""
    lines = [
        review(
            pod(number, **(labels or LABELS[number % len(LABELS)])),
            phase=phase,
            path=f"/{phase}.fail.versions/v1",
            namespace=NAMESPACE,
        )
        for number in range(reviews)
        for phase in ("mutate", "validate")
    ]
    return recording(folder / "recorded.jsonl.gz", *lines)


@pytest.mark.smoke
@pytest.mark.usefixtures("engine")
def test_equal_answers_are_counted_whatever_joins_their_lines(tmp_path: Path) -> None:
    source, new = recorded(tmp_path), new_configuration(tmp_path / "config", "order")
    found = prove(source, "--config", new)
    assert (found["compared"], found["equal"], found["differences"]) == (40, 40, [])
    done = call_command("migrate", "prove", source, "--config", new)
    assert done.stdout.splitlines() == [
        f"40 reviews through {new}, compared with the webhooks of {tmp_path / 'old'}",
        "equal on 40 reviews; 0 not compared",
    ]
    exact = prove(source, "--config", new, "--exact", status=1)
    # Of two lines the order is another one.
    assert (exact["equal"], [one["found"][0]["difference"] for one in exact["differences"]]) == (
        32,
        ["message"],
    )


@pytest.mark.usefixtures("engine")
def test_many_equal_differences_are_one_case_that_fails_until_they_are_gone(tmp_path: Path) -> None:
    source, new = recorded(tmp_path, 300, cost="1"), new_configuration(tmp_path / "config", "forgets")
    cases = tmp_path / "cases"
    found = prove(source, "--config", new, "--output", cases, status=1)
    assert (found["compared"], found["equal"], found["different"]) == (600, 300, 300)
    (group,) = found["differences"]
    assert group == {
        "count": 300,
        "kind": "Pod",
        "operation": "CREATE",
        "case": "001 CREATE Pod",
        "example": {"uid": "u-0", "namespace": "shop", "name": "web-0", "user": "ann"},
        "found": [
            {
                "difference": "decision",
                "webhooks": ["old-engine/validate.old-engine.test"],
                "old": ["denied (403)", "[owners] label owner is missing"],
                "new": ["allowed"],
            }
        ],
    }
    (case,) = yaml.safe_load((cases / "counterexamples.yaml").read_text())["cases"]
    assert case["namespace"] == {"name": "shop", "labels": {"tier": "prod"}}
    assert case["expect"] == {
        "allowed": False,
        "code": 403,
        "messageLines": ["[owners] label owner is missing"],
    }
    failed = call_command("test", cases)
    assert failed.returncode == 1
    assert "allowed: found true, expected false" in failed.stdout
    new_configuration(tmp_path / "config")
    passed = call_command("test", cases)
    assert passed.returncode == 0, passed.stdout


@pytest.mark.parametrize(
    ("fault", "kinds", "line"),
    [
        ("words", ["message"], "messageLines: differs"),
        ("stamp", ["object"], "object: the object after all changes differs"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_other_differences_are_cases_too(tmp_path: Path, fault: str, kinds: list[str], line: str) -> None:
    source, new = recorded(tmp_path), new_configuration(tmp_path / "config", fault)
    cases = tmp_path / "cases"
    found = prove(source, "--config", new, "--output", cases, status=1)
    assert [one["found"][0]["difference"] for one in found["differences"]] == kinds * len(
        found["differences"]
    )
    assert line in call_command("test", cases).stdout
    new_configuration(tmp_path / "config")
    assert call_command("test", cases).returncode == 0
    text = call_command("migrate", "prove", source, "--config", new, "--old", tmp_path / "old")
    assert text.returncode == 0


def test_a_failed_call_decides_nothing(tmp_path: Path) -> None:
    with old_engine(tmp_path) as gone:
        write(tmp_path / "old" / "registered.yaml", *gone.registrations())
    found = prove(recorded(tmp_path), "--config", new_configuration(tmp_path / "config"), status=3)
    assert (found["equal"], found["different"], found["undecided"]) == (0, 0, 40)
    assert {one["reviews"] for one in found["failures"]} == {20}
    assert all(one["reason"].startswith("old: old-engine/") for one in found["failures"])


def test_a_service_is_reached_at_another_address(tmp_path: Path) -> None:
    with old_engine(tmp_path) as engine:
        old = write(tmp_path / "registered.yaml", *engine.registrations(by_service=True))
        new = new_configuration(tmp_path / "config")
        arguments = (recorded(tmp_path), "--config", new, "--old", old)
        connect = f"policies/old-engine=127.0.0.1:{engine.port}"
        found = prove(*arguments, "--connect", connect)
        assert found["equal"] == 40
        assert len(engine.reviews) == 40
        other = call_command("migrate", "prove", *arguments, "--connect", "a/b=127.0.0.1:1")
        assert other.returncode == 2
        assert other.stderr == "admission-gateway: --connect: no webhook of --old is served by b.a.svc\n"


def test_objects_and_audit_logs_go_through_both_phases(tmp_path: Path) -> None:
    def stamped(request: Json, path: str) -> Json:
        if path == "/validate":
            assert request["object"]["metadata"]["labels"]["stamped"] == "yes"
        return answer(request, path)

    with old_engine(tmp_path, stamped) as engine:
        old = write(tmp_path / "old" / "registered.yaml", *engine.registrations())
        objects = write(
            tmp_path / "objects.yaml", *(pod(n, **labels)["object"] for n, labels in enumerate(LABELS))
        )
        namespaces = write(
            tmp_path / "namespaces.yaml", {"apiVersion": "v1", "kind": "Namespace", **NAMESPACE}
        )
        new = new_configuration(tmp_path / "config")
        found = prove("--objects", objects, "--config", new, "--old", old, "--namespaces", namespaces)
        assert found["equal"] == len(LABELS)
        log = tmp_path / "audit.log"
        event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "stage": "ResponseComplete",
            "verb": "create",
            "auditID": "a",
            "user": {"username": "ann"},
            "objectRef": {"resource": "pods", "namespace": "shop", "apiVersion": "v1", "name": "web-1"},
            "requestObject": pod(1)["object"],
            "responseStatus": {"code": 201},
        }
        log.write_text(json.dumps(event) + "\n")
        found = prove("--audit-log", log, "--config", new, "--old", old, "--namespaces", namespaces)
        assert (found["compared"], found["equal"]) == (1, 1), found


@pytest.mark.usefixtures("engine")
def test_values_of_secrets_are_in_no_report_and_no_case(tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "shop", "labels": {"cost": "1"}},
        "data": {"password": "Y29ycmVjdGhvcnNl"},
    }
    objects = write(tmp_path / "objects.yaml", secret)
    new, cases = new_configuration(tmp_path / "config", "forgets"), tmp_path / "cases"
    done = call_command("migrate", "prove", "--objects", objects, "--config", new, "--output", cases)
    assert done.returncode == 1, done.stderr
    texts = [file.read_text() for file in cases.iterdir()]
    assert len(texts) == 2
    assert not any("Y29ycmVjdGhvcnNl" in text or "correcthorse" in text for text in [*texts, done.stdout])
    assert call_command("test", cases).returncode == 1


@pytest.mark.usefixtures("engine")
def test_wrong_usage_is_named(tmp_path: Path) -> None:
    new, source = new_configuration(tmp_path / "config"), recorded(tmp_path, 1)
    for arguments, message in (
        ((source,), "--config"),
        (("--config", new), "expected RECORDING, --audit-log, --objects or --cluster-objects"),
        ((source, "--config", tmp_path / "a" / "b"), "expected --old: there is no folder"),
        ((source, "--config", new, "--force"), "--force needs --output"),
        (
            (source, "--config", new, "--connect", "a/b=c"),
            "found a/b=c, expected NAMESPACE/SERVICE=HOST:PORT",
        ),
        ((source, "--config", new, "--old", new), "found no webhook with a url or service"),
        ((tmp_path / "none.gz", "--config", new), "none.gz"),
    ):
        done = call_command("migrate", "prove", *arguments)
        assert done.returncode == 2, (arguments, done.stdout)
        assert message in done.stderr
        assert sum(" INFO worker " not in line for line in done.stderr.splitlines()) == 1


messages = st.lists(
    st.text(st.sampled_from("ab ;P\n"), max_size=12).map(lambda text: f"[c] {text}"), max_size=6
)


@given(messages, st.randoms())
def test_neither_order_nor_repetition_nor_what_joins_them_counts(texts: list[str], random: Any) -> None:
    whole = lines_of(texts)
    shuffled = [*texts, *texts[:2]]
    random.shuffle(shuffled)
    assert lines_of(shuffled) == whole
    assert lines_of(["\n  ".join(shuffled)]) == whole
    assert lines_of(whole) == whole
