"""Options of ``admission-gateway watchdog``; ``gateway.tools.watchdog`` is the implementation."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.watchdog.run import Watchdog, Watched

_SECONDS: Final = {
    "interval": (5, "between two looks"),
    "after": (60, "for which the gateway has to be away before anything is done"),
    "recovered": (30, "for which it has to answer before the registration is restored"),
    "min-open": (60, "for which a registration stays relaxed at least"),
    "min-closed": (300, "for which it stays restored at least"),
    "escalate-after": (300, "after which Ignore follows Exempt, with --mode Ignore"),
}
_MAX_S: Final = 86_400
_UNHEALTHY_AFTER_S: Final = 60.0

HELP: Final = Help(
    "Watch the registration of a gateway. Alert while no gateway answers, or relax the registration "
    "meanwhile and restore it.",
    (
        ("alert only", "watchdog"),
        ("in a lock-out: relax the registration now", "watchdog --relax"),
    ),
    "docs/lock-outs.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    from gateway.tools.watchdog.state import Mode

    add = parser.add_argument
    cluster.add_arguments(parser, "to watch")
    add("--name", default="admission-gateway", help="of the registration (default: admission-gateway)")
    add(
        "--mode",
        choices=get_args(Mode),
        default="Alert",
        help="what may be done: alert only (default); exempt what the cluster itself needs; after that, "
        "have nothing reviewed",
    )
    add(
        "--probe",
        metavar="FILE",
        type=Path,
        help="object, YAML or JSON, that is created in a dry run to see whether the gateway answers; "
        "an entry with Fail has to match it",
    )
    add(
        "--exempt-namespace",
        metavar="NS",
        action="append",
        help="namespace that Exempt leaves out (default: kube-system); may be repeated",
    )
    add("--failures", metavar="N", type=int, default=6, help="looks in a row that have to fail (default: 6)")
    for name, (default, meaning) in _SECONDS.items():
        add(
            f"--{name}",
            metavar="S",
            type=float,
            default=default,
            help=f"seconds {meaning} (default: {default})",
        )
    add("--listen", metavar="HOST:PORT", help="address of /metrics and /healthz (default: none)")
    person = parser.add_mutually_exclusive_group()
    person.add_argument(
        "--relax",
        action="store_true",
        help="relax the registration now, and exit: to Exempt, or with --mode Ignore to Ignore; a watchdog "
        "that runs restores it",
    )
    person.add_argument("--restore", action="store_true", help="restore the registration now, and exit")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Watch until SIGTERM or SIGINT, and return the exit status. *refuse* prints a usage error and exits.

    Raises:
        ClusterError: with --relax or --restore: the cluster cannot be reached, or refuses.
        GatewayError: no cluster is configured, or the probe cannot be used.
    """
    from gateway.tools.watchdog.run import Watchdog

    listen = _checked(parsed, refuse)
    watchdog = Watchdog(_watched(parsed, refuse))
    target = cluster.select(None, parsed.kubeconfig, parsed.context)
    if parsed.relax or parsed.restore:
        asyncio.run(_once(target, watchdog.relax if parsed.relax else watchdog.close))
    else:
        asyncio.run(_watch(target, watchdog, listen))
    return 0


def _checked(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> tuple[str, int] | None:
    """Return the address to listen on, after invalid values of options were refused."""
    from gateway.config.kinds.names import dns_1123_label

    for name in _SECONDS:
        value = getattr(parsed, name.replace("-", "_"))
        least = 0.1 if name == "interval" else 0
        if not (math.isfinite(value) and least <= value <= _MAX_S):
            refuse(f"argument --{name}: found {value:g}, expected {least:g} to {_MAX_S} seconds")
    if not 1 <= parsed.failures <= 1000:
        refuse(f"argument --failures: found {parsed.failures}, expected a number from 1 to 1000")
    for namespace in parsed.exempt_namespace or ():
        if message := dns_1123_label(namespace):
            refuse(f"argument --exempt-namespace: {message}")
    if parsed.mode != "Alert" and parsed.probe is None and not (parsed.relax or parsed.restore):
        refuse(f"--mode {parsed.mode} needs --probe")
    if parsed.listen is None:
        return None
    host, _, port = parsed.listen.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        refuse(f"argument --listen: found {parsed.listen!r}, expected HOST:PORT")
    return host.strip("[]"), int(port)


def _watched(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> Watched:
    from gateway.tools.watchdog.probe import read_probe
    from gateway.tools.watchdog.run import Watched
    from gateway.tools.watchdog.state import Settings

    namespaces = tuple(parsed.exempt_namespace or ("kube-system",))
    probe = None if parsed.probe is None else read_probe(parsed.probe)
    if probe is not None and probe.namespace in namespaces:
        refuse(f"--probe is in {probe.namespace}, which --exempt-namespace leaves out")
    settings = Settings(
        mode=parsed.mode,
        failures=parsed.failures,
        after_s=parsed.after,
        recovered_s=parsed.recovered,
        min_open_s=parsed.min_open,
        min_closed_s=parsed.min_closed,
        escalate_after_s=parsed.escalate_after,
    )
    return Watched(parsed.name, namespaces, probe, settings, parsed.interval)


async def _once(target: KubernetesSettings, act: Callable[[ApiClient], Awaitable[None]]) -> None:
    from gateway.server.kubernetes.access import connect

    api = await asyncio.to_thread(connect, target)
    try:
        await act(api)
    finally:
        await api.close()


async def _watch(target: KubernetesSettings, watchdog: Watchdog, listen: tuple[str, int] | None) -> None:
    import time

    from gateway.base import logs
    from gateway.tools.watchdog.pages import pages
    from gateway.tools.watchdog.run import exposition, watch

    watched = watchdog.watched
    logs.print_output(f"watching the registration {watched.name}; mode {watched.settings.mode}")
    if listen is None:
        await watch(target, watchdog)
        return
    started = time.time()

    def is_healthy() -> bool:
        last = max(started, watchdog.counters.looked_at)
        return time.time() - last < max(_UNHEALTHY_AFTER_S, 3 * watched.interval_s)

    async with pages(*listen, lambda: exposition(watchdog.counters), is_healthy) as port:
        logs.print_output(f"metrics on port {port}")
        await watch(target, watchdog)
