"""A reload of a gateway in this process: it fails before anything has changed, or all of it is in force."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn

import orjson
import pytest

from gateway.base.errors import ConfigError, Problem
from gateway.server import app
from gateway.server.app import Gateway
from gateway.server.options import Options
from gateway.server.reload import NOT_FOLLOWED
from tests.core.build import document
from tests.engine.https import post
from tests.policies.documents import binding, policy, written
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from gateway.server.reload import Follower, Reload

ERRORS = (ConfigError([Problem("file", "field", "wrong")]), RuntimeError("a bug"), OSError("no room"))
GATEWAY = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "logging": {"decisions": "All"},
}


class ReloadedGateway:
    """A gateway on a running loop, and the folder of its configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "config"
        self.folder.mkdir()
        self.write("first")
        self.options = Options(
            (self.folder,), dev=True, state=folder / "state", listen="127.0.0.1:0", admin_listen="127.0.0.1:0"
        )
        self.gateway = Gateway(self.options, lambda pool: ())

    def write(self, name: str) -> None:
        """Make policies that deny with *name* the configuration."""
        denial = {"expression": "false", "message": f"by {name}"}
        written(self.folder, [GATEWAY, policy(validations=[denial]), binding()])

    async def answer(self) -> str:
        """The text with which the front end denies a Pod."""
        answer = await post(self.gateway.port, "/validate", document())
        return str(orjson.loads(answer)["response"]["status"]["message"])


def run(folder: Path, scenario: Callable[[ReloadedGateway], Awaitable[None]]) -> None:
    async def main() -> None:
        reloaded = ReloadedGateway(folder)
        try:
            await reloaded.gateway.start(reloaded.options.load(), "127.0.0.1:0")
            await scenario(reloaded)
        finally:
            await reloaded.gateway.stop(0.0)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "no task is left")

    asyncio.run(main())


def failing(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*arguments: object, **options: object) -> NoReturn:
        raise error

    return fail


def failing_later(error: BaseException) -> Callable[..., Awaitable[NoReturn]]:
    async def fail(*arguments: object, **options: object) -> NoReturn:
        await asyncio.sleep(0)
        raise error

    return fail


def test_what_cannot_be_staged_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reloaded: ReloadedGateway) -> None:
        gateway = reloaded.gateway
        places: list[tuple[Any, str, bool]] = [
            (Options, "load", False),
            (gateway._front_end, "stage", False),
            (app, "PageAccess", False),
            (gateway._tracing, "stage", True),
            (gateway._follower, "stage", True),
            (gateway._engine, "prepare", True),
        ]
        reloaded.write("second")
        in_force, review = gateway.config, gateway._engine.review
        for owner, name, is_async in places:
            for error in ERRORS:
                with monkeypatch.context() as patch:
                    patch.setattr(owner, name, (failing_later if is_async else failing)(error))
                    assert not await gateway.reload(), name
                assert gateway.config is in_force
                assert gateway._engine.review is review
                assert "by first" in await reloaded.answer()
                assert any("the one in force stays" in line for line in gateway._warnings())
        assert await gateway.reload()
        assert "by second" in await reloaded.answer()
        assert not gateway._warnings()

    run(tmp_path, scenario)


def test_what_cannot_follow_leaves_the_configuration_in_force_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(reloaded: ReloadedGateway) -> None:
        gateway, followers = reloaded.gateway, reloaded.gateway._followers
        groups: dict[str, Sequence[Follower]] = {
            name: getattr(followers, name) for name in ("_always", "_new", "_last")
        }
        names = [name for group in groups.values() for name, _ in group]
        called: list[str] = []
        number = 0

        def noting(name: str, follow: Callable[[Reload], Any], broken: str, fail: Callable[..., Any]) -> Any:
            def noted(reload: Reload) -> object:
                called.append(name)
                return fail() if name == broken else follow(reload)

            return noted

        for broken in names:
            for kind in (failing, failing_later):
                for error in ERRORS:
                    number += 1
                    called.clear()
                    caplog.clear()
                    for group, content in groups.items():
                        made = tuple((name, noting(name, one, broken, kind(error))) for name, one in content)
                        setattr(followers, group, made)
                    reloaded.write(f"number {number}.")
                    before = gateway.config
                    assert await gateway.reload()
                    assert f"by number {number}." in await reloaded.answer()
                    assert called == names
                    assert gateway.config is not before
                    assert f"{NOT_FOLLOWED}: {broken}" in gateway._warnings()
                    assert [one.getMessage() for one in caplog.records if one.exc_info] == [
                        f"{NOT_FOLLOWED}: {broken}"
                    ]
        for group, content in groups.items():
            setattr(followers, group, content)
        reloaded.write("the last")
        assert await gateway.reload()
        assert "by the last" in await reloaded.answer()
        assert not gateway._warnings()

    caplog.set_level(logging.ERROR)
    run(tmp_path, scenario)


@pytest.mark.parametrize("steps", range(1, 60, 7))
def test_a_gateway_stops_in_the_middle_of_a_reload(tmp_path: Path, steps: int) -> None:
    async def scenario(reloaded: ReloadedGateway) -> None:
        reloaded.write("second")
        first = reloaded.gateway.config
        reload = asyncio.create_task(reloaded.gateway.reload())
        for _ in range(steps):
            await asyncio.sleep(0)
        reload.cancel()
        await asyncio.wait([reload])
        assert ("by first" in await reloaded.answer()) == (reloaded.gateway.config is first)

    run(tmp_path, scenario)
