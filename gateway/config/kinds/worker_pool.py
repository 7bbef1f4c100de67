"""WorkerPool: workers to call, in a file or a custom resource.

Paths of files are relative to the folder of the file that names them. A WorkerPool from the cluster may not
name files, sockets or programs of the gateway's machine: its author may choose the workers, and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from gateway.base.text import described, one_of, shown
from gateway.config.kinds import addresses
from gateway.config.kinds.files import read_ca_bundle, read_ca_file, read_key_pair
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.pure.core.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

TransportMode = Literal["Auto", "Stream", "Unary"]
PolicySource = Literal["Own", "ReadyMade"]
TRANSPORTS: tuple[TransportMode, ...] = get_args(TransportMode)
POLICY_SOURCES: tuple[PolicySource, ...] = get_args(PolicySource)
MAX_IN_FLIGHT = 1_000_000
"""Even at a kilobyte for each call, a gigabyte."""
LONGEST_HEDGE_S = 30.0
"""The longest time of a review."""
PERCENTILE = re.compile(r"p([5-9][0-9](?:\.[0-9]{1,6})?)")
"""At most six decimals: with more, 99.9… would round to 100."""
_LIBRARY: Final = ("-m", "admission_gateway_worker.policies")
"""In the command of a worker with the ready-made policies."""


@dataclass(frozen=True, slots=True)
class WorkerTls:
    """TLS to the workers of a pool. All files are PEM."""

    ca_file: Path | None = None
    """Roots that the worker's certificate must chain to. By default ``ca_bundle``, or the system's."""
    cert_file: Path | None = None
    """The gateway's certificate, for workers that request one."""
    key_file: Path | None = None
    server_name: str | None = None
    """The expected name in the worker's certificate. By default the host in the target."""
    ca_bundle: bytes | None = None
    """The roots themselves, PEM, instead of ``ca_file``."""


@dataclass(frozen=True, slots=True)
class Hedge:
    """When a hedge, a second call at another endpoint, is made; the first answer counts."""

    after_s: float | None = None
    """Seconds without an answer. By default the ``percentile`` of the pool's own latencies."""
    percentile: float = 95.0
    """From 50 to below 100; used when ``after_s`` is None."""
    budget_percent: float = 5.0
    """Extra calls per hundred calls, at most."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """A set of interchangeable workers. Exactly one of ``targets`` and ``command`` is non-empty."""

    name: str
    targets: tuple[str, ...] = ()
    """gRPC names: ``dns:///HOST:PORT``, ``unix:PATH``, ``ipv4:A:P,B:P``, ``ipv6:[A]:P``, ``HOST:PORT``."""
    command: tuple[str, ...] = ()
    """A local worker to start and supervise; ``--listen unix:PATH`` is appended."""
    transport: TransportMode = "Auto"
    max_in_flight: int = 1024
    """Calls per endpoint. Above it a call with Ignore makes room for one with Fail, or the new call fails."""
    tls: WorkerTls | None = None
    """None for plaintext."""
    hedge: Hedge | None = None
    """None if no call is hedged."""
    policies: PolicySource = field(default="Own", compare=False, repr=False)
    """Whose policies the workers serve. No decision depends on it: it is for ``check``."""

    @property
    def serves_ready_made(self) -> bool:
        """Whether the workers serve the ready-made policies of the SDK for Python."""
        return self.policies == "ReadyMade" or _LIBRARY in zip(self.command, self.command[1:], strict=False)


def read_worker_pool(fields: Fields, folder: Path | None) -> WorkerPool:
    """Return the WorkerPool behind *fields*, from a file in *folder*, or from the cluster if that is None."""
    name = read_metadata(fields, dns_1123_subdomain).name
    spec = fields.required_mapping("spec")
    fields.finish()
    if spec is None:
        return WorkerPool(name)
    ways = ("target", "targets", "command") if folder else ("target", "targets")
    given = [way for way in ways if spec.has(way)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        spec.problems.add(spec.path, f"found {found}, expected exactly one of {one_of(ways)}")
    targets = _read_targets(spec, folder)
    if folder is None:
        _refuse_local(spec)
    pool = WorkerPool(
        name,
        targets=targets,
        command=_read_command(spec),
        transport=spec.choice("transport", TRANSPORTS, "Auto"),
        max_in_flight=spec.integer("maxInFlight", WorkerPool("").max_in_flight, 1, MAX_IN_FLIGHT),
        tls=_read_worker_tls(spec.mapping("tls"), folder),
        hedge=_read_hedge(spec.mapping("hedge")),
        policies=spec.choice("policies", POLICY_SOURCES, "Own"),
    )
    if pool.tls and (pool.command or any(map(addresses.is_local, targets))):
        spec.problem(
            "tls",
            "is not allowed with a command or a unix socket: their connections do not leave this machine",
        )
    if pool.hedge and (pool.command or (len(targets) == 1 and addresses.is_local(targets[0]))):
        spec.problems.warn(spec.at("hedge"), "has no effect: the pool has only one endpoint")
    spec.finish()
    return pool


def _refuse_local(spec: Fields) -> None:
    """Report the fields that a custom resource may not have; ``spec`` does not read ``command`` then."""
    if spec.has("command"):
        spec.problem("command", "is not allowed in a custom resource, expected target or targets")
    tls = spec.content.get("tls")
    for name in ("caFile", "certFile", "keyFile"):
        if isinstance(tls, dict) and tls.get(name) is not None:
            message = "is not allowed in a custom resource, expected caBundle"
            spec.problems.add(f"{spec.at('tls')}.{name}", message)


def _read_targets(spec: Fields, folder: Path | None) -> tuple[str, ...]:
    targets: list[str] = []
    seen: set[str] = set()
    texts = []
    for name in ("target", "targets"):
        if name == "targets" or isinstance(spec.content.get(name), list):
            texts += spec.indexed_strings(name, addresses.target)
            if spec.content.get(name) == []:
                spec.problem(name, "is empty, expected at least one gRPC name")
        elif (text := spec.string(name, None, addresses.target)) is not None:
            texts.append((spec.at(name), text))
    for path, text in texts:
        if folder is None and addresses.is_local(text):
            reason = "expected a network address: a custom resource may not name unix sockets"
            spec.problems.add(path, f"found {shown(text)}, {reason}")
            continue
        resolved = text if folder is None else addresses.below(folder, text)
        spec.problems.named_files[resolved] = text
        if resolved in seen:
            spec.problems.add(path, f"found {shown(text)} twice")
        seen.add(resolved)
        message = addresses.target(resolved)
        if message and not addresses.target(text):
            spec.problems.add(path, message)
        targets.append(resolved)
    return tuple(targets)


def _read_command(spec: Fields) -> tuple[str, ...]:
    arguments = spec.strings("command", lambda text: "contains a NUL character" if "\0" in text else None)
    value = spec.content.get("command")
    if isinstance(value, list) and (not value or value[0] == ""):
        spec.problem(
            "command",
            "is empty, expected a program and its arguments such as "
            "[python, -m, admission_gateway_worker.samples]",
        )
    return arguments


def _read_worker_tls(fields: Fields | None, folder: Path | None) -> WorkerTls | None:
    if fields is None:
        return None
    files = WorkerTls()
    if folder is not None:
        pair = read_key_pair(fields)
        ca_file = read_ca_file(fields, "caFile")
        files = WorkerTls(ca_file=ca_file, cert_file=pair.cert_file, key_file=pair.key_file)
    else:
        fields.accept("caFile", "certFile", "keyFile")
    tls = replace(
        files,
        ca_bundle=read_ca_bundle(fields, "caBundle"),
        server_name=fields.string("serverName", None, addresses.server_name),
    )
    if fields.has("caFile") and fields.has("caBundle"):
        fields.problem("caBundle", "is not allowed together with caFile")
    fields.finish()
    return tls


def _read_hedge(fields: Fields | None) -> Hedge | None:
    if fields is None:
        return None
    default = Hedge()
    after_s, percentile = _read_hedge_after(fields, default)
    budget_percent = fields.number("budgetPercent", default.budget_percent, 0, 100)
    if not budget_percent:
        found = described(fields.content["budgetPercent"])
        fields.problem("budgetPercent", f"found {found}, expected more than 0; leave out hedge for no hedges")
    fields.finish()
    return Hedge(after_s, percentile, budget_percent)


def _read_hedge_after(fields: Fields, default: Hedge) -> tuple[float | None, float]:
    """Return the time in seconds, or None and the percentile."""
    if not fields.has("after"):
        return default.after_s, default.percentile
    value = fields.content["after"]
    if isinstance(value, str):
        if percentile := PERCENTILE.fullmatch(value):
            return None, float(percentile[1])
        try:
            after_s = parse_duration(value)
        except ValueError:
            after_s = 0.0
        if 0 < after_s <= LONGEST_HEDGE_S:
            return after_s, default.percentile
    longest = format_duration(LONGEST_HEDGE_S)
    fields.problem(
        "after",
        f"found {described(value)}, expected a duration such as 20ms, more than 0 and at most {longest}, "
        "or a percentile of the pool's own latencies from p50 to p99.9",
    )
    return default.after_s, default.percentile
