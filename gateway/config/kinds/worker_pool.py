"""WorkerPool: workers to call, in a file or a custom resource.

Paths of files are relative to the folder of the file that names them. A WorkerPool from the cluster may not
name files, sockets or programs of the gateway's machine: its author may choose the workers, and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from gateway.base.text import described, shown
from gateway.config.kinds import addresses
from gateway.config.kinds.declare import (
    Choice,
    Declaration,
    Declared,
    File,
    Group,
    Integer,
    Number,
    Read,
    Schema,
    Text,
    Type,
    declare,
    optional,
)
from gateway.config.kinds.files import read_ca_bundle, read_ca_file, read_key_pair
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import SUBDOMAIN_LENGTH, dns_1123_subdomain
from gateway.config.kinds.validation import exactly_one, excluded
from gateway.pure.core.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

TransportMode = Literal["Auto", "Stream", "Unary"]
PolicySource = Literal["Own", "ReadyMade"]
_TRANSPORTS: tuple[TransportMode, ...] = get_args(TransportMode)
_POLICY_SOURCES: tuple[PolicySource, ...] = get_args(PolicySource)
_MAX_IN_FLIGHT: Final = 1_000_000
"""Even at a kilobyte for each call, a gigabyte."""
_MAX_TARGETS: Final = 64
"""In a custom resource."""
_LONGEST_HEDGE_S: Final = 30.0
"""The longest time of a review."""
_PERCENTILE: Final = re.compile(r"p([5-9][0-9](?:\.[0-9]{1,6})?)")
"""At most six decimals: with more, 99.9… would round to 100."""
_DEFAULT_PERCENTILE: Final = 95.0
_LIBRARY: Final = ("-m", "admission_gateway_worker.policies")
"""In the command of a worker with the ready-made policies."""
_HOST: Final = r"([A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?\.?|\[[0-9a-fA-F:.]+\])"
_PORT: Final = "[1-9][0-9]{0,4}"
_IPV4: Final = rf"[0-9.]+:{_PORT}"
_IPV6: Final = rf"\[[0-9a-fA-F:.]+\]:{_PORT}"
_TARGET: Final[Schema] = {
    "type": "string",
    "maxLength": 1024,
    "pattern": f"^((dns:(///)?)?{_HOST}:{_PORT}|ipv4:{_IPV4}(,{_IPV4})*|ipv6:{_IPV6}(,{_IPV6})*)$",
}
"""A gRPC name in a custom resource: no unix socket."""
_PEM_FILE: Final = "path of a PEM file"


class _Targets(Type[tuple[str, ...]]):
    """gRPC names, which the pool reads. *custom* is the schema of a custom resource."""

    def __init__(self, words: str, custom: Schema) -> None:
        self.words = words
        self._custom = custom

    def schema(self) -> Schema:
        return {"type": ["string", "array"]}

    def custom_schema(self) -> Schema:
        return self._custom


class _HedgeAfter(Type["float | None"]):
    """A duration or a percentile, which the hedge reads."""

    words = "duration such as `20ms`, at most `30s`, or a percentile from `p50` to `p99.9`"

    def schema(self) -> Schema:
        rule = (
            f"self.matches(r'^{_PERCENTILE.pattern}$') || "
            "(duration(self) > duration('0s') && duration(self) <= duration('30s'))"
        )
        message = "after is a duration, more than 0 and at most 30s, or a percentile from p50 to p99.9"
        rules = [{"rule": rule, "message": message}]
        return {"type": "string", "maxLength": 32, "x-kubernetes-validations": rules}


@dataclass(frozen=True, slots=True)
class WorkerTls(Declared):
    """TLS to the workers of a pool. All files are PEM."""

    RULES = (excluded("caBundle", "caFile", "is not allowed together with caFile"),)
    ca_file: Path | None = optional(
        File(read_ca_file, _PEM_FILE),
        "Roots of the worker's certificate. Absent: `caBundle`, or the roots of the system",
        instead="caBundle",
    )
    cert_file: Path | None = optional(
        File(words=_PEM_FILE),
        "The gateway's client certificate, for workers that request one. Needs `keyFile`",
        instead="caBundle",
    )
    key_file: Path | None = optional(File(words=_PEM_FILE), "The key of `certFile`", instead="caBundle")
    server_name: str | None = optional(
        Text("DNS name or IP address", addresses.server_name, minLength=1, maxLength=SUBDOMAIN_LENGTH),
        "Name to expect in the worker's certificate. Absent: the host of the target",
    )
    ca_bundle: bytes | None = optional(
        Read("PEM in base64", read_ca_bundle, maxLength=524288, format="byte"),
        "Roots in the document itself. Not together with `caFile`. Absent: those of the system",
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the certificate and its key."""
        return {} if source.problems.folder is None else read_key_pair(source)._asdict()


@dataclass(frozen=True, slots=True)
class Hedge(Declared):
    """When a hedge, a second call at another endpoint, is made; the first answer counts."""

    after_s: float | None = optional(
        _HedgeAfter(),
        "How long a call waits for its answer before the second one is sent. A percentile is that of the "
        "pool's own latency",
        name="after",
        written=f"p{_DEFAULT_PERCENTILE:g}",
    )
    """Seconds without an answer. By default the ``percentile`` of the pool's own latencies."""
    percentile: float = _DEFAULT_PERCENTILE
    """From 50 to below 100; used when ``after_s`` is None."""
    budget_percent: float = declare(
        Number(0, 100, "percent of calls", exclusiveMinimum=True),
        "Additional calls, more than 0 and at most 100 for each hundred calls",
        default=5.0,
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the time in seconds, or the percentile."""
        if not source.has("after"):
            return {}
        value = source.content["after"]
        if isinstance(value, str):
            if percentile := _PERCENTILE.fullmatch(value):
                return {"after_s": None, "percentile": float(percentile[1])}
            try:
                after_s = parse_duration(value)
            except ValueError:
                after_s = 0.0
            if 0 < after_s <= _LONGEST_HEDGE_S:
                return {"after_s": after_s}
        longest = format_duration(_LONGEST_HEDGE_S)
        source.problem(
            "after",
            f"found {described(value)}, expected a duration such as 20ms, more than 0 and at most {longest}, "
            "or a percentile of the pool's own latencies from p50 to p99.9",
        )
        return {"after_s": None}

    def check(self, source: Fields) -> None:
        """Report a budget of nothing."""
        if not self.budget_percent:
            found = described(source.content["budgetPercent"])
            message = f"found {found}, expected more than 0; leave out hedge for no hedges"
            source.problem("budgetPercent", message)


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


def _read_command(spec: Fields, name: str) -> tuple[str, ...]:
    arguments = spec.strings(name, lambda text: "contains a NUL character" if "\0" in text else None)
    value = spec.content.get(name)
    if isinstance(value, list) and (not value or value[0] == ""):
        spec.problem(
            name,
            "is empty, expected a program and its arguments such as "
            "[python, -m, admission_gateway_worker.samples]",
        )
    return arguments


@dataclass(frozen=True, slots=True)
class WorkerPool(Declared):
    """A set of interchangeable workers. Exactly one of ``targets`` and ``command`` is non-empty."""

    WITHOUT_ATTRIBUTE = MappingProxyType(
        {
            "target": Declaration(
                _Targets("gRPC name, or a list of them", _TARGET),
                "Where the workers are: `dns:///HOST:PORT`, `HOST:PORT`, `unix:PATH`, `unix-abstract:NAME`, "
                "`ipv4:ADDRESS:PORT[,…]`, `ipv6:[ADDRESS]:PORT[,…]`. Each address behind a DNS name is an "
                "endpoint. Names are resolved again every 5 seconds, and every 0.5 seconds while none has an "
                "address. A custom resource may not name unix sockets",
            )
        }
    )
    RULES = (exactly_one("target", "targets", "command"),)
    name: str
    targets: tuple[str, ...] = declare(
        _Targets(
            "list of gRPC names",
            {
                "type": "array",
                "minItems": 1,
                "maxItems": _MAX_TARGETS,
                "x-kubernetes-list-type": "set",
                "items": _TARGET,
            },
        ),
        "The same as a list. A custom resource has to use this field for several names",
        default=(),
    )
    command: tuple[str, ...] = declare(
        Read(
            "list of strings",
            _read_command,
            "array",
            maxItems=64,
            items={"type": "string", "maxLength": 4096},
        ),
        "A local worker. The gateway starts it with `--listen unix:PATH` appended, and restarts it when it "
        "ends",
        default=(),
        instead="target or targets",
    )
    transport: TransportMode = declare(
        Choice(_TRANSPORTS),
        "`Stream` batches calls over `ReviewStream`, `Unary` makes one gRPC call for each. `Auto` uses the "
        "stream where the worker serves it",
        default="Auto",
    )
    max_in_flight: int = declare(
        Integer(1, _MAX_IN_FLIGHT, "calls"),
        "Calls in flight to one endpoint, from 1 to 1,000,000. At the limit, calls of webhooks with "
        "`failurePolicy: Ignore` are ended to make room for webhooks with `Fail`; otherwise the new call "
        "fails at once",
        default=1024,
    )
    tls: WorkerTls | None = optional(
        Group(WorkerTls), "TLS to the workers. Absent: plaintext. Not with `command` or a unix socket"
    )
    hedge: Hedge | None = optional(
        Group(Hedge),
        "Sends a slow call to a second endpoint too. The first answer counts. Only for webhooks with "
        "`sideEffects: None`, and not for chains. Absent: no hedging",
    )
    policies: PolicySource = declare(
        Choice(_POLICY_SOURCES),
        "`ReadyMade`: the workers serve the [ready-made policies](catalogue/index.md), so that `check` "
        "judges names and parameters of policies without a worker. It knows that without this field of a "
        "`command` with `-m admission_gateway_worker.policies`, and the chart sets it for such workers",
        default="Own",
        is_compared=False,
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the gRPC names of both fields."""
        return {"targets": _read_targets(source, source.problems.folder)}

    def check(self, source: Fields) -> None:
        """Report TLS to a local worker, and warn of a hedge without a second endpoint."""
        if self.tls and (self.command or any(map(addresses.is_local, self.targets))):
            source.problem(
                "tls",
                "is not allowed with a command or a unix socket: their connections do not leave this machine",
            )
        if self.hedge and (self.command or (len(self.targets) == 1 and addresses.is_local(self.targets[0]))):
            source.problems.warn(source.at("hedge"), "has no effect: the pool has only one endpoint")

    @property
    def serves_ready_made(self) -> bool:
        """Whether the workers serve the ready-made policies of the SDK for Python."""
        return self.policies == "ReadyMade" or _LIBRARY in zip(self.command, self.command[1:], strict=False)


def read_worker_pool(fields: Fields) -> WorkerPool:
    """Return the WorkerPool behind *fields*."""
    name = read_metadata(fields, dns_1123_subdomain).name
    spec = fields.required_mapping("spec")
    fields.finish()
    return WorkerPool(name) if spec is None else WorkerPool.read(spec, name=name)
