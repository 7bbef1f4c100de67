"""Runs the rules for ``admission-gateway conformance``; its options are in
``gateway.tools.cli.conformance``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import uvloop

from admission_gateway_conformance.probe import probe
from admission_gateway_conformance.process import Running, Started
from admission_gateway_conformance.report import Text, as_json, summary
from admission_gateway_conformance.run import FAILS, RULES, check
from admission_gateway_conformance.target import find_target
from admission_gateway_conformance.vectors import FOLDER, load
from gateway.base.logs import print_output
from gateway.base.progress import Progress
from gateway.base.text import did_you_mean, printable_json, shown
from gateway.config.kinds.worker_pool import WorkerTls
from gateway.engine.dispatch.keepalive import KEEPALIVE_TIME_S

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from admission_gateway_conformance.process import Process
    from admission_gateway_conformance.rule import Rule
    from admission_gateway_conformance.vectors import Vector


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Check the worker and return the exit status. *refuse* prints a usage error and exits."""
    rules = _selected(parsed.only, refuse)
    vectors = load(parsed.vectors or FOLDER)
    return 1 if uvloop.run(_check(parsed, rules, vectors)) else 0


async def _check(parsed: argparse.Namespace, rules: list[Rule], vectors: tuple[Vector, ...]) -> bool:
    """Check *rules*, print the results, and return whether any rule failed."""
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
    address: str,
    process: Process | None,
    parsed: argparse.Namespace,
    rules: list[Rule],
    vectors: tuple[Vector, ...],
) -> bool:
    files = (parsed.ca_file, parsed.cert_file, parsed.key_file, parsed.server_name)
    name = " ".join(parsed.worker) if parsed.worker else address
    text, results = Text(), []
    async with await find_target(address, WorkerTls(*files) if any(files) else None) as target:
        facts = await probe(target, parsed.policy, vectors, parsed.patience)
        facts.process = process
        facts.ping_after_s = KEEPALIVE_TIME_S if parsed.keepalive else 0.0
        with Progress("checking the rules of the contract", len(rules)) as progress:
            async for result in check(target, facts, rules):
                results.append(result)
                progress.advance()
                if not parsed.json:
                    print_output(*text.lines(result))
    if parsed.json:
        found = orjson.dumps(as_json(name, results), option=orjson.OPT_INDENT_2)
        print_output(*printable_json(found.decode()).split("\n"))
    else:
        print_output(*text.rest(), summary(name, results))
    return any(result.outcome == FAILS for result in results)


def _selected(names: list[str], refuse: Callable[[str], object]) -> list[Rule]:
    known: dict[str, Any] = {rule.name: rule for rule in RULES}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            refuse(f"argument --only: found {shown(name)}, expected the name of a rule{hint}")
    return [rule for rule in RULES if not names or rule.name in names]
