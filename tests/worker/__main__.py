"""``python -m tests.worker``: the scripted worker as a process. It prints its addresses when it serves."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import uvloop

from tests.worker.server import ScriptedWorker, options_of, parse

if TYPE_CHECKING:
    import argparse


async def serve(parsed: argparse.Namespace) -> None:
    if parsed.attack:
        from tests.worker import attacks

        targets = [f"127.0.0.1:{attacks.listen(name, parsed.seed)}" for name in parsed.attack]
    else:
        worker = ScriptedWorker(**options_of(parsed))
        if worker.health is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, worker.health.switch)
        targets = [worker.target]
    print(*targets, flush=True)  # noqa: T201
    await asyncio.Event().wait()


uvloop.run(serve(parse()))
