"""The workers that the gateway starts, across changes of the configuration."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.model import Config
from gateway.engine import siblings
from gateway.engine.siblings import Siblings
from gateway.server.process import local_workers
from gateway.server.process.local_workers import LocalWorkers, targets_of
from tests.process.kit import lines, runs
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

GRACE_S = 30.0


def pool(name: str, file: Path) -> WorkerPool:
    """Return a pool whose worker writes its process id into *file*."""
    return WorkerPool(name, command=("sh", "-c", f"echo $$ >> {file}; exec sleep 1000"))


def use(workers: LocalWorkers, pools: Mapping[str, WorkerPool]) -> None:
    """Put *pools* in force."""
    workers.stage(pools)
    workers.activate()


async def test_a_retiring_worker_is_kept_when_it_is_configured_again(tmp_path: Path) -> None:
    """The timer of *other* ends later than that of *back* would."""
    back, other = pool("back", tmp_path / "back"), pool("other", tmp_path / "other")
    workers = LocalWorkers(tmp_path, retire_after_s=0.05)
    use(workers, {"back": back, "other": other})
    await until(lambda: lines(tmp_path / "back") and lines(tmp_path / "other"))
    use(workers, {})
    use(workers, {"back": back})
    await until(lambda: not runs(int(lines(tmp_path / "other")[0])))
    (started,) = lines(tmp_path / "back")
    assert runs(int(started))
    await workers.stop(GRACE_S)
    assert not runs(int(started))


async def test_a_configuration_that_is_abandoned_ends_its_own_workers_alone(tmp_path: Path) -> None:
    old, kept, new = (pool(name, tmp_path / name) for name in ("old", "kept", "new"))
    workers = LocalWorkers(tmp_path, retire_after_s=0.0)
    use(workers, {"old": old, "kept": kept})
    await until(lambda: lines(tmp_path / "old") and lines(tmp_path / "kept"))
    workers.stage({"kept": kept, "new": new})
    await until(lambda: lines(tmp_path / "new"))
    assert not workers._retiring
    workers.abandon()
    await until(lambda: not runs(int(lines(tmp_path / "new")[0])))
    assert [runs(int(lines(tmp_path / name)[0])) for name in ("old", "kept")] == [True, True]
    use(workers, {"kept": kept})
    await until(lambda: not runs(int(lines(tmp_path / "old")[0])))
    await workers.stop(GRACE_S)
    assert [len(lines(tmp_path / name)) for name in ("old", "kept", "new")] == [1, 1, 1]


async def test_a_worker_stays_while_a_gateway_process_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that refuses the new configuration, of which the parent knows the files alone."""
    old, new = pool("old", tmp_path / "old"), pool("new", tmp_path / "new")
    process = Siblings(tmp_path, 0, partial(targets_of, runtime=tmp_path))
    found = list[bool]()

    def is_used(runtime: Path, path: Path) -> bool:
        found.append(siblings.is_used(runtime, path))
        return found[-1]

    monkeypatch.setattr(local_workers, "is_used", is_used)
    using, over = (replace(Config(), pools={one.name: one}) for one in (old, new))
    workers = LocalWorkers(tmp_path, retire_after_s=0.05)
    use(workers, {"old": old})
    await until(lambda: lines(tmp_path / "old"))
    process.in_force(using, "a")
    use(workers, {"new": new})
    await until(lambda: lines(tmp_path / "new"))
    (pid,) = lines(tmp_path / "old")
    found.clear()
    await until(lambda: len(found) >= 2)
    assert found[:2] == [True, True]
    assert runs(int(pid))
    process.in_force(over, "b")
    await until(lambda: not runs(int(pid)))
    await workers.stop(GRACE_S)


async def test_stop_also_stops_retiring_workers(tmp_path: Path) -> None:
    workers = LocalWorkers(tmp_path)
    use(workers, {"a": pool("a", tmp_path / "a")})
    await until(lambda: lines(tmp_path / "a"))
    use(workers, {"b": pool("b", tmp_path / "b")})
    await until(lambda: lines(tmp_path / "b"))
    both = [int(lines(tmp_path / name)[0]) for name in ("a", "b")]
    assert [runs(pid) for pid in both] == [True, True]
    await workers.stop(GRACE_S)
    assert [runs(pid) for pid in both] == [False, False]


async def test_kill_reaches_workers_in_every_state(tmp_path: Path) -> None:
    """An active, a retiring and a stopping worker, which all ignore SIGTERM."""
    names = "stopping", "retiring", "kept"
    files = {name: tmp_path / name for name in names}
    pools = {
        name: WorkerPool(name, command=("sh", "-c", f"trap '' TERM; echo $$ >> {file}; exec sleep 1000"))
        for name, file in files.items()
    }
    workers = LocalWorkers(tmp_path, retire_after_s=0.0)
    use(workers, pools)
    await until(lambda: all(lines(file) for file in files.values()))
    pids = [int(lines(file)[0]) for file in files.values()]
    use(workers, {name: pools[name] for name in names[1:]})
    await until(lambda: workers._stopping)
    workers._retire_after_s = 1000.0
    use(workers, {"kept": pools["kept"]})
    stop = asyncio.create_task(workers.stop(GRACE_S))
    await asyncio.sleep(0.01)
    assert all(runs(pid) for pid in pids)
    workers.kill()
    await stop
    assert not any(runs(pid) for pid in pids)


async def test_a_successor_starts_after_its_predecessor_has_left_the_socket(tmp_path: Path) -> None:
    log = tmp_path / "log"
    on_term = f"echo stopping >> {log}; sleep 0.1; echo ended >> {log}; exit"
    script = f"trap '{on_term}' TERM; echo up >> {log}; while :; do sleep 0.01; done"
    slow = {"slow": WorkerPool("slow", command=("sh", "-c", script))}
    workers = LocalWorkers(tmp_path, retire_after_s=0.0)
    use(workers, slow)
    await until(lambda: "up" in lines(log))
    use(workers, {})
    await until(lambda: "stopping" in lines(log))
    use(workers, slow)
    await until(lambda: lines(log).count("up") == 2)
    await workers.stop(GRACE_S)
    assert lines(log) == ["up", "stopping", "ended", "up", "stopping", "ended"]


def test_a_changed_command_has_a_socket_of_its_own(tmp_path: Path) -> None:
    old, new = pool("a", tmp_path / "old"), pool("a", tmp_path / "new")
    assert targets_of(old, tmp_path) == targets_of(old, tmp_path) != targets_of(new, tmp_path)
    assert targets_of(WorkerPool("a", ("dns:///x:1",)), tmp_path) == ("dns:///x:1",)
