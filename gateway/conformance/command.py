"""``admission-gateway conformance``: its options, and the order of what it does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.logs import out
from gateway.text import printable_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.conformance.process import Process
    from gateway.conformance.rule import Rule
    from gateway.conformance.vectors import Vector


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add to *parser* what the command takes."""
    add = parser.add_argument
    add(
        "target", metavar="TARGET", nargs="?", help="HOST:PORT, unix:PATH, or what else a WorkerPool may name"
    )
    add("--ca-file", metavar="FILE", type=Path, help="speak TLS; CA of the worker's certificate, PEM")
    add("--cert-file", metavar="FILE", type=Path, help="own certificate, for a worker that asks for one, PEM")
    add("--key-file", metavar="FILE", type=Path, help="its key, PEM")
    add("--server-name", metavar="NAME", help="name in the worker's certificate (default: that of TARGET)")
    add("--policy", metavar="NAME", help="policy to ask where any will do, if the samples are not served")
    add(
        "--pid",
        metavar="N",
        type=_pid,
        help="the worker's process: stop it in the end, and see how it does that",
    )
    add("--keepalive", action="store_true", help="check pings in silence too, which takes three minutes")
    add("--only", metavar="RULE", action="append", default=[], help="check this rule alone; may be repeated")
    add(
        "--vectors",
        metavar="DIR",
        type=Path,
        help="folder of samples.json (default: that of the workers package)",
    )
    add("--json", action="store_true", help="print one JSON object in the end, instead of lines")
    add(
        "--command",
        dest="worker",
        metavar="WORD",
        nargs=argparse.REMAINDER,
        help="instead of TARGET, and last: the worker to start, with --listen unix:PATH added, and to stop",
    )
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Check the worker and return the exit status. *refuse* exits, and says what is wrong."""
    import uvloop

    from gateway.conformance.vectors import FOLDER, load

    _look_through(parsed, refuse)
    rules = _chosen(parsed.only, refuse)
    vectors = load(parsed.vectors or FOLDER)
    return 1 if uvloop.run(_check(parsed, rules, vectors)) else 0


async def _check(parsed: argparse.Namespace, rules: list[Rule], vectors: tuple[Vector, ...]) -> bool:
    """Check *rules*, print what comes of them, and return whether any was broken."""
    from gateway.conformance.process import Running, Started

    if not parsed.worker:
        process = None if parsed.pid is None else Running(parsed.pid)
        return await _check_at(parsed.target, process, parsed, rules, vectors)
    started = Started(parsed.worker)
    try:
        await started.listening()
        return await _check_at(started.target, started, parsed, rules, vectors)
    finally:
        await started.close()


async def _check_at(
    target: str,
    process: Process | None,
    parsed: argparse.Namespace,
    rules: list[Rule],
    vectors: tuple[Vector, ...],
) -> bool:
    import orjson

    from gateway.config.model import WorkerTls
    from gateway.conformance.door import find
    from gateway.conformance.probe import look_at
    from gateway.conformance.report import Text, as_json, summary
    from gateway.conformance.run import FAILS, check
    from gateway.dispatch.wire import PING_AFTER_S

    files = (parsed.ca_file, parsed.cert_file, parsed.key_file, parsed.server_name)
    name = " ".join(parsed.worker) if parsed.worker else target
    text, results = Text(), []
    async with await find(target, WorkerTls(*files) if any(files) else None) as door:
        facts = await look_at(door, parsed.policy, vectors)
        facts.process = process
        facts.ping_after_s = PING_AFTER_S if parsed.keepalive else 0.0
        async for result in check(door, facts, rules):
            results.append(result)
            if not parsed.json:
                out(*text.lines(result))
    if parsed.json:
        found = orjson.dumps(as_json(name, results), option=orjson.OPT_INDENT_2)
        out(*printable_json(found.decode()).split("\n"))
    else:
        out(*text.rest(), summary(name, results))
    return any(result.outcome == FAILS for result in results)


def _look_through(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    from gateway.config import addresses

    if parsed.worker is not None and not parsed.worker:
        refuse("--command is to be followed by the worker's command line")
    if parsed.worker and (parsed.target or parsed.pid is not None):
        refuse("--command starts a worker of its own: leave TARGET and --pid out")
    if parsed.worker and any((parsed.ca_file, parsed.cert_file, parsed.key_file, parsed.server_name)):
        refuse("--command starts a worker on a unix socket, without TLS: give a TARGET for that")
    if not parsed.worker and not parsed.target:
        refuse("TARGET or --command is needed")
    if parsed.target and (message := addresses.target(parsed.target)):
        refuse(f"TARGET: {message}")
    if parsed.server_name and (message := addresses.server_name(parsed.server_name)):
        refuse(f"argument --server-name: {message}")
    if (parsed.cert_file is None) != (parsed.key_file is None):
        refuse("--cert-file and --key-file go together")


def _chosen(names: list[str], refuse: Callable[[str], object]) -> list[Rule]:
    from gateway.config.fields import did_you_mean
    from gateway.conformance.run import RULES
    from gateway.text import shown

    known: dict[str, Any] = {rule.name: rule for rule in RULES}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            refuse(f"argument --only: found {shown(name)}, expected the name of a rule{hint}")
    return [rule for rule in RULES if not names or rule.name in names]


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:12]) < 2**22 + 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected the number of a process")
    return int(text)
