"""``python -m tests.worker``: the scripted worker as a process. It prints its addresses when it serves."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from pathlib import Path

import uvloop

from admission_gateway_worker.listen import Tls
from tests.worker.server import Server
from tests.worker.service import Service


async def serve(parsed: argparse.Namespace) -> None:
    if parsed.attack:
        from tests.worker import attacks

        targets = [f"127.0.0.1:{attacks.listen(name, parsed.seed)}" for name in parsed.attack]
    else:
        service = Service(
            override=parsed.override,
            every=parsed.every,
            log=parsed.log,
            has_chains=parsed.chains,
            has_stream=not parsed.no_stream,
            has_health=parsed.health,
            declared=parsed.declare,
        )
        if service.health is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, service.health.switch)
        tls = None
        if parsed.tls is not None:
            key, certificate, authority = parsed.tls
            tls = Tls(certificate, key, authority)
        targets = [Server(service.methods()).listen(parsed.listen, tls)]
    print(*targets, flush=True)  # noqa: T201
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--no-stream", action="store_true")
    parser.add_argument("--tls", nargs=3, type=Path, metavar=("KEY", "CERT", "CLIENT_CA"))
    parser.add_argument("--override", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--log", type=Path, metavar="FILE")
    parser.add_argument("--declare", type=Path, metavar="FILE")
    parser.add_argument("--health", action="store_true")
    parser.add_argument("--chains", action="store_true")
    parser.add_argument("--attack", action="append", default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=0, help="of the attack `fuzz`")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
