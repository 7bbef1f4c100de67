"""``admission-gateway replay --plan``: what rollout plans would have done while reviews were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.text import rfc3339
from tests.kit import call_command
from tests.replay.kit import configure, owner, pod, recording, replay, review

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process

START = 1_795_046_400
STAGES = [
    {"mode": "Audit", "for": "24h", "gates": {"maxNewlyDenied": 0, "minReviews": 10}},
    {"mode": "Warn", "percentOfNamespaces": 50, "for": "24h", "gates": {"maxP99Milliseconds": 50}},
    {"mode": "Enforce"},
]


def at(hour: float, name: str = "web", namespace: str = "default", **members: Any) -> dict[str, Any]:
    """A review so many hours after the start."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"bad": "x"} if name.startswith("bad") else {},
        "ownerReferences": [owner("apps/v1", "ReplicaSet", f"{name}-1")],
    }
    request = pod(
        uid=f"{name}-{namespace}-{hour}",
        name=name,
        namespace=namespace,
        object={"metadata": metadata, "spec": {}},
        **members,
    )
    labels = {"metadata": {"name": namespace, "labels": {}}}
    return review(request, time=rfc3339(START + hour * 3600), namespace=labels)


def configured(folder: Path, worker: str, **plan: Any) -> Path:
    script = {"deny": {"code": 403, "message": "no"}, "when": "bad"}
    return configure(folder, worker, "validate", script, rollout={"plan": {"stages": STAGES, **plan}})


@pytest.mark.smoke
def test_a_week_of_recordings_shows_when_a_plan_would_have_been_promoted(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configured(tmp_path / "c", start_worker().target)
    # Two files that overlap, as those of two processes.
    first = recording(tmp_path / "a.gz", *(at(hour) for hour in range(0, 60, 2)))
    second = recording(tmp_path / "b.gz", *(at(hour) for hour in range(1, 60, 2)))
    done = call_command("replay", first, second, "--config", config, "--plan")
    assert done.returncode == 0, done.stderr
    half = "Warn, enforced in 50 % of the namespaces"
    assert done.stdout.splitlines() == [
        "validate v/h0.v.test: 60 answers, 2026-11-19T00:00:00Z to 2026-11-21T11:00:00Z",
        "  2026-11-19T00:00:00Z start    stage 1 of 3 (Audit): stage 1: Audit",
        f"  2026-11-20T00:00:00Z promote  stage 2 of 3 ({half}): all gates passed for 24h",
        "  2026-11-21T00:00:00Z promote  stage 3 of 3 (Enforce): all gates passed for 24h",
        "  2026-11-21T01:00:00Z complete stage 3 of 3 (Enforce): all gates passed for 1h",
        "  at the end: Complete in stage 3 of 3",
        "  not judged: maxP99Milliseconds",
    ]
    again = call_command("replay", second, first, "--config", config, "--plan")
    assert again.stdout == done.stdout


def test_denials_pause_a_plan_and_dry_runs_do_not(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configured(tmp_path / "c", start_worker().target)
    good = [at(hour) for hour in range(60)]
    dry = recording(tmp_path / "dry.gz", *good, at(3.5, "bad", dryRun=True))
    (found,) = replay(dry, "--config", config, "--plan")["plans"]
    assert found["phase"] == "Complete"
    bad = recording(tmp_path / "bad.gz", *good, at(3.5, "bad"), at(3.6, "bad"))
    (found,) = replay(bad, "--config", config, "--plan")["plans"]
    assert (found["phase"], found["stage"]) == ("Paused", 1)
    assert found["decisions"][-1] == {
        "time": "2026-11-19T03:30:00Z",
        "action": "pause",
        "stage": 1,
        "why": "maxNewlyDenied: 1, such as default ReplicaSet/bad-1, expected at most 0",
    }


def test_what_would_be_refused_in_many_namespaces_rolls_a_plan_back(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    stages = [{"mode": "Warn", "for": "1h"}, {"mode": "Enforce", "for": "24h"}]
    limits = {"minOwners": 3, "minNamespaces": 3}
    config = configured(tmp_path / "c", start_worker().target, stages=stages, rollback=limits)
    bad = [at(hour, f"bad-{hour}", f"team-{hour % 2}") for hour in range(2, 10)]
    (found,) = replay(recording(tmp_path / "two.gz", at(0), *bad), "--config", config, "--plan")["plans"]
    assert (found["phase"], found["stage"]) == ("Progressing", 2)
    path = recording(tmp_path / "three.gz", at(0), *bad, at(11, "bad", "team-2"))
    (found,) = replay(path, "--config", config, "--plan")["plans"]
    assert (found["phase"], found["stage"]) == ("RolledBack", 1)
    assert found["decisions"][-1]["why"].startswith("requests of 9 owners in 3 namespaces were refused")


def test_what_cannot_be_said_is_an_error(tmp_path: Path, start_worker: StartWorker) -> None:
    target = start_worker().target
    without = configure(tmp_path / "without", target, "validate", {})
    path = recording(tmp_path / "a.gz", at(0))
    done = call_command("replay", path, "--config", without, "--plan")
    assert done.returncode == 2
    assert done.stderr.endswith("no webhook has a rollout.plan\n")
    config = configured(tmp_path / "c", target)
    done = call_command("replay", path, "--config", config, "--plan", "--against", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--plan: not together with --against, --write-exceptions or --html" in done.stderr
    timeless = recording(tmp_path / "b.gz", review(pod()))
    done = call_command("replay", timeless, "--config", config, "--plan")
    assert done.stdout.splitlines() == [
        "no review with a time was replayed: nothing is known about the plans",
        "1 reviews: the time of the review is not known",
    ]
    assert done.returncode == 1


def test_wrong_times_are_said(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configured(tmp_path / "c", start_worker().target)
    late = {**at(0), "time": "2099-01-01T00:00:00Z"}
    early = {**at(0), "time": "0001-01-01T00:00:00Z"}
    path = recording(tmp_path / "a.gz", *(at(hour) for hour in range(30)), late, early)
    done = call_command("replay", path, "--config", config, "--plan")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "promote  stage 2 of 3" in lines[2]
    assert lines[-2:] == [
        "1 reviews: later than 366 days after the first one: not judged; is a time in the recordings wrong?",
        "1 reviews: the time of the review is not known",
    ]
