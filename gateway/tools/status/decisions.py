"""Recent decisions of one gateway, or of all replicas: read from their admin ports, and as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from admission_gateway_worker.text import printable
from gateway.base.errors import GatewayError
from gateway.base.terminal import Cell, Style, Styled
from gateway.base.text import endpoint_text
from gateway.observe.decisions.document import names_with_modes, not_enforced
from gateway.pure.core.decision import WOULD_BE_REFUSED
from gateway.tools.offline.changes import changes
from gateway.tools.status.reading import WRONG_ANSWER, message_of, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.tools.status.reading import AdminPort

    Json = dict[str, Any]

_STYLES: Final[dict[str, Style]] = {
    "Allowed": "good",
    "Denied": "denied",
    "DryRunRefused": "denied",
    "FailedClosed": "failed",
    "FailedOpen": "failed",
}
_MAX_LINE_CHARS: Final = 500
_MAX_LINES: Final = 50
"""The most lines of one message, or of the changes."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What one gateway said, or why it said nothing."""

    name: str
    decisions: list[Json] = field(default_factory=list)
    """The latest first; with all details if a uid was asked for."""
    since: str = ""
    """Older denials and failures are not kept any more. RFC 3339."""
    left_out: int = 0
    """Denials, failures and fail-opens that came too fast to be kept."""
    missing: int = 0
    """Processes of the gateway that did not answer."""
    error: str = ""

    def as_json(self) -> Json:
        """Return the member of ``gateways`` in the JSON of the command."""
        return {
            "name": self.name,
            "error": self.error,
            "since": self.since,
            "leftOut": self.left_out,
            "processesWithoutAnswer": self.missing,
        }


async def read_decisions(port: AdminPort, wanted: Mapping[str, str]) -> Decisions:
    """Return the decisions of the gateway behind *port* that *wanted* selects, the parameters of the page.

    With ``uid`` the decision has all details. Raises nothing about the gateway.
    """
    try:
        found = await _get(port, f"/decisions?{urlencode({**wanted, 'format': 'json'})}", "DecisionList")
        decisions = found["decisions"]
        if wanted.get("uid") and decisions:
            uid = quote(wanted["uid"], safe="")
            page = await _get(port, f"/decisions/{uid}?format=json", "Decision")
            # An older gateway does not name endpoints.
            decisions = [{**page["decision"], "endpointNames": page.get("endpointNames", {})}]
        scope = found["scope"]
        read = Decisions(
            *(port.name, decisions, found["since"], found["leftOut"]),
            missing=scope["processes"] - scope["answered"],
        )
        list(text([read]))  # another program may answer with anything
    except GatewayError as error:
        return Decisions(port.name, error=str(error))
    except WRONG_ANSWER as error:
        return Decisions(port.name, error=f"is this a gateway's admin port? {printable(repr(error), 200)}")
    return read


async def _get(port: AdminPort, path: str, kind: str) -> Json:
    status, body = await port.get(path)
    if status != 200:
        reason = port.note or message_of(body) or f"the pages answer {status}"
        raise GatewayError(f"its pages cannot be read: {reason}")
    found = parsed(body)
    if not isinstance(found, dict) or found.get("kind") != kind:
        raise GatewayError(f"the answer is not a {kind}: is this a gateway's admin port?")
    return found


def merged(found: Sequence[Decisions], limit: int) -> list[Json]:
    """Return the decisions of all gateways, the latest first, at most *limit*, each with its ``gateway``."""
    every = [{**one, "gateway": each.name} for each in found for one in each.decisions]
    every.sort(key=lambda one: str(one["time"]), reverse=True)
    return every[:limit]


def text(found: Sequence[Decisions], limit: int = 1000) -> Iterator[str]:
    """Yield the lines about the decisions in *found*. Every line is printable."""
    for one in merged(found, limit):
        yield from _decision(one, names_gateway=len(found) > 1)
        yield ""
    for each in found:
        if each.error:
            yield _no_answer(each)
        elif each.missing:
            yield _line(f"{each.name}: {each.missing} of its processes did not answer")


def places(found: Sequence[Decisions]) -> Iterator[str]:
    """Yield a line for each gateway: where was looked, and what it has not kept."""
    for each in found:
        if each.error:
            yield f"  {_no_answer(each)}"
            continue
        missing = f"; {each.missing} processes did not answer" if each.missing else ""
        yield _line(
            f"  {each.name}: has denials and failures since {each.since}, "
            f"without {each.left_out:,} that came too fast to be kept{missing}"
        )


def _no_answer(of: Decisions) -> str:
    # An error of the connection begins with the address, which is the name.
    return _line(f"{of.name}: no answer: {of.error.removeprefix(f'{of.name}: ')}")


def _decision(one: Json, *, names_gateway: bool) -> Iterator[str]:
    name = one["name"] or "(no name yet)"
    place = f"{one['namespace']}/" if one["namespace"] else ""
    dry_run = ", dry run" if one["dryRun"] else ""
    by = f" by {one['webhook']}" if one["webhook"] else ""
    what = f"{one['operation']} {one['kind']} {place}{name}"
    refusing = not_enforced(one)
    shown: list[str | Cell] = [f"{one['time']} ", _outcome(one["outcome"]), by]
    if refusing:
        shown += [", ", (WOULD_BE_REFUSED, "warn"), f" by {names_with_modes(refusing)}"]
    yield Styled(*shown, f": {what}", limit=_MAX_LINE_CHARS)
    yield _line(f"  uid {one['uid']}, by {one['user'] or 'nobody'}, {one['phase']}{dry_run}, {one['code']}")
    if names_gateway:
        yield _line(f"  at {one['gateway']}")
    yield from _message("  ", one["message"])
    if "notCalled" not in one:
        for hook in refusing:
            line = f"{hook['webhook']}: {hook['outcome']}: {hook['message']}"
            yield from _message("  ", line.removesuffix(": "))
        return
    yield _line(f"  configuration {one['configurationDigest'][:12]}, {one['milliseconds']:g} ms")
    if one["traceId"]:
        yield _line(f"  trace {one['traceId']}")
    yield from webhook_lines(one)


def webhook_lines(one: Json) -> Iterator[str]:
    """Yield lines about the webhooks of the decision *one*, which has all details, and what they changed."""
    names = one.get("endpointNames", {})
    for hook in one["webhooks"]:
        place = f" by {hook['policy']} in pool {hook['pool']}" if hook["pool"] else ""
        mode = "" if hook["mode"] == "Enforce" else f", mode {hook['mode']}: no effect"
        changed = ", changed the object" if hook["changed"] else ""
        endpoint = hook["endpoint"]
        at = f" ({endpoint_text(endpoint, names.get(endpoint, ''))})" if endpoint else ""
        times = f", {hook['milliseconds']:g} ms" if endpoint else ""
        about = f"{place}{at}{mode}{changed}{times}"
        name = f"  {hook['configuration']}/{hook['webhook']}: "
        yield Styled(name, _outcome(hook["outcome"]), about, limit=_MAX_LINE_CHARS)
        yield from _message("    ", hook["message"])
    for hook in one["notCalled"]:
        yield _line(f"  {hook['configuration']}/{hook['webhook']}: not called: {hook['reason']}")
    yield from (_line(f"  warning: {warning}") for warning in one["warnings"])
    if one["object"] is None or one["object"] == one["finalObject"]:
        return
    yield "  changes:"
    lines = list(changes(one["object"], one["finalObject"]))
    yield from (_line(f"    {line}") for line in lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES:
        yield f"    and {len(lines) - _MAX_LINES} more lines"


def _outcome(outcome: object) -> Cell:
    return str(outcome), _STYLES.get(str(outcome), "")


def _message(indent: str, message: str) -> Iterator[str]:
    lines = message.split("\n") if message else []
    yield from (_line(f"{indent}{line}") for line in lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES:
        yield f"{indent}and {len(lines) - _MAX_LINES} more lines"


def _line(content: str) -> str:
    return printable(content, _MAX_LINE_CHARS)
