"""``python -m tests.worker``: the scripted worker as a process. It prints its addresses when it serves."""

from __future__ import annotations

import asyncio
import signal

import uvloop

from tests.worker.server import ScriptedWorker, parse


async def serve() -> None:
    options, others = parse()
    if others.attack:
        from tests.worker import attacks

        targets = [f"127.0.0.1:{attacks.listen(name, others.seed)}" for name in others.attack]
    else:
        worker = ScriptedWorker(**options)
        if worker.health is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, worker.health.switch)
        targets = [worker.target]
    print(*targets, flush=True)  # noqa: T201
    await asyncio.Event().wait()


uvloop.run(serve())
