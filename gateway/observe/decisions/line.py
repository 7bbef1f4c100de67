"""Records of the decision log as JSON and as text, each of one line of bounded length.

Texts of foreign origin cannot forge a line or send commands to a terminal: in JSON every unprintable
character is escaped, and text is escaped by ``gateway.base.text.printable``. docs/decision-log.md describes
the JSON.

Source: RFC 3339 (times), RFC 8259.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import orjson

from admission_gateway_worker.text import printable
from gateway.base.text import printable_json, rfc3339
from gateway.observe.decisions.document import decision_head, unusual, webhook_document
from gateway.observe.decisions.record import digest_of, is_secret

if TYPE_CHECKING:
    from gateway.observe.decisions.record import DecisionRecord, WebhookRecord
    from gateway.pure.core.webhook import Webhook

MAX_NAME_CHARS: Final = 512
"""The longest name; Kubernetes allows 253 characters."""
MAX_MESSAGE_CHARS: Final = 2048
MAX_WEBHOOK_MESSAGE_CHARS: Final = 256
MAX_WEBHOOKS: Final = 32
"""The most webhooks of one record."""
MAX_LINE_BYTES: Final = 16 * 1024
"""Container runtimes split longer lines. With the bounds above only texts with many escapes are longer; all
texts of such a record are cut to ``_SHORT_CHARS``."""
_SHORT_CHARS: Final = 64
_FEW_WEBHOOKS: Final = 8
_MAX_TEXT_LINE_CHARS: Final = 4000
"""The longest line of text. A character has up to four bytes."""

_PLAIN: Final = re.compile(r"[\w.:/@-]*")

Document = dict[str, Any]


class RefusedRequest(Protocol):
    """An HTTP request that the gateway itself refused: its path, and its headers by lower-case name."""

    target: bytes
    headers: dict[bytes, bytes]


class RefusalResponse(Protocol):
    """The answer to it. The body is ``{"error": TEXT}``."""

    @property
    def status(self) -> int: ...  # noqa: D102
    @property
    def body(self) -> bytes: ...  # noqa: D102


def decision(record: DecisionRecord, *, secret_names: bool) -> Document:
    """Return the document of *record*; *secret_names* is whether it has the names of Secrets."""
    members: Document = {"log": "decision", **decision_head(record)}
    document = {name: members[name] for name in _MEMBERS}
    if not secret_names and is_secret(record.kind):
        document["name"] = ""
    for name in _FOREIGN:
        document[name] = _cut(document[name])
    document["message"] = _cut(document["message"], MAX_MESSAGE_CHARS)
    document["webhooks"] = list(map(webhook, record.webhooks[:MAX_WEBHOOKS]))
    if len(record.webhooks) > MAX_WEBHOOKS:
        document["webhooksLeftOut"] = len(record.webhooks) - MAX_WEBHOOKS
    return document


_MEMBERS: Final = (
    *("time", "log", "uid", "traceId", "user", "namespace", "name", "milliseconds", "operation"),
    *("apiVersion", "kind", "resource", "dryRun", "path", "phase", "configuration", "webhook", "pool"),
    *("policy", "endpoint", "outcome", "mode", "exception", "allowed", "code", "message"),
    "configurationDigest",
)
"""The members of a line in their order, before ``webhooks``."""
_FOREIGN: Final = ("uid", "user", "namespace", "name", "apiVersion", "kind", "resource", "path")
"""Members with texts of clients, which may have any length."""
_WEBHOOK_MEMBERS: Final = (
    "configuration",
    "webhook",
    "pool",
    "policy",
    "endpoint",
    "outcome",
    "milliseconds",
)
_RARE_MEMBERS: Final = ("round", "changed", "repeated", "exception", "mode", "help")


def webhook(record: WebhookRecord) -> Document:
    """Return the member of ``webhooks`` for *record*."""
    whole = cast("Document", webhook_document(record))
    document = {name: whole[name] for name in _WEBHOOK_MEMBERS} | unusual(whole, _RARE_MEMBERS)
    if record.parameters:
        document["parametersDigest"] = digest_of(record.parameters)
    if record.outcome != "Allowed":
        document["code"] = record.code
        document["message"] = _cut(record.message, MAX_WEBHOOK_MESSAGE_CHARS)
    return document


def refusal(at: float, request: RefusedRequest, response: RefusalResponse, trace_id: str) -> Document:
    """Return the document of a *request* that the gateway itself refused with *response*."""
    return {
        "time": rfc3339(at, 3),
        "log": "decision",
        "traceId": trace_id,
        "path": _cut(request.target.partition(b"?")[0].decode("latin-1")),
        "outcome": "Refused",
        "allowed": False,
        "code": response.status,
        "message": _cut(_error(response.body), MAX_MESSAGE_CHARS),
    }


def rollout(at: float, webhook: Webhook, action: str, stage: int, user: str, message: str) -> Document:
    """Return the document of an *action* of a rollout plan, which is in *stage* (from 1) after it.

    *user* asked for it. Empty: the gateway decided.
    """
    return {
        "time": rfc3339(at, 3),
        "log": "decision",
        "user": _cut(user),
        "configuration": webhook.plan_id.configuration,
        "webhook": webhook.name,
        "outcome": "Rollout",
        "action": action,
        "stage": stage,
        "message": _cut(message, MAX_MESSAGE_CHARS),
    }


def dropped(at: float, number: int) -> Document:
    """Return the document in place of *number* records that were dropped."""
    return {
        "time": rfc3339(at, 3),
        "log": "decision",
        "outcome": "Dropped",
        "dropped": number,
        "message": f"{number} records were dropped",
    }


def as_json(document: Document) -> bytes:
    """Return *document* as a line of JSON."""
    found = _encoded(document)
    return found if len(found) <= MAX_LINE_BYTES else _encoded(_shortened(document))


def _shortened(document: Document) -> Document:
    webhooks = [
        {name: _cut(value, _SHORT_CHARS) if isinstance(value, str) else value for name, value in one.items()}
        for one in document.get("webhooks", ())
    ]
    left_out = document.get("webhooksLeftOut", 0) + max(0, len(webhooks) - _FEW_WEBHOOKS)
    return {
        **{
            name: _cut(value, _SHORT_CHARS) if isinstance(value, str) else value
            for name, value in document.items()
        },
        **({"webhooks": webhooks[:_FEW_WEBHOOKS]} if webhooks else {}),
        **({"webhooksLeftOut": left_out} if left_out else {}),
    }


def _encoded(document: Document) -> bytes:
    try:
        found = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # Half of a surrogate pair, which is not UTF-8.
        return f"{json.dumps(document)}\n".encode().replace(b"\x7f", b"\\u007f")
    if found.isascii() and b"\x7f" not in found:
        # The control characters of ASCII are escaped, apart from DEL.
        return found
    return printable_json(found.decode()).encode()


def as_text(document: Document) -> bytes:
    """Return *document* as a line for people."""
    outcome, message = document["outcome"], document["message"]
    title = f"{document['time']} decision {outcome}:"
    match outcome:
        case "Dropped":
            line = f"{title} {message}"
        case "Rollout":
            by = f" by {_quoted(document['user'])}" if document["user"] else ""
            where = f"{document['configuration']}/{document['webhook']}"
            line = f"{title} {document['action']}{by} of {where} to stage {document['stage']}: {message}"
        case "Refused":
            line = f"{title} {document['code']} at {document['path']}: {message}"
        case _:
            line = f"{title} {_decision_text(document)}"
    return f"{printable(line, _MAX_TEXT_LINE_CHARS)}\n".encode()


def _decision_text(document: Document) -> str:
    """Return the text of a decision. Its message is last, so that it cannot pass for anything else."""
    object_ = "/".join(_quoted(document[part]) for part in ("namespace", "name") if document[part])
    subject = (document["operation"], _quoted(document["apiVersion"]), _quoted(document["kind"]), object_)
    dry_run = " (dry run)" if document["dryRun"] else ""
    by = f" by {_quoted(document['user'])}" if document["user"] else ""
    more = {
        "webhook": f"{document['configuration']}/{document['webhook']}" if document["webhook"] else "",
        **{name: document[name] for name in ("pool", "policy", "endpoint", "code")},
        "exception": document["exception"],
        "ms": document["milliseconds"],
        "uid": _quoted(document["uid"]),
        "trace": document["traceId"],
        "path": document["path"],
        "config": document["configurationDigest"][:12],
    }
    facts = " ".join(f"{key}={value}" for key, value in more.items() if value != "")
    message = f": {document['message']}" if document["message"] else ""
    return f"{' '.join(part for part in subject if part)}{dry_run}{by} [{facts}]{message}"


def _quoted(text: str) -> str:
    """Return *text*, in quotation marks unless it is a plain name."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _cut(text: str, limit: int = MAX_NAME_CHARS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _error(body: bytes) -> str:
    """Return the text of the body of a ``RefusalResponse``."""
    try:
        found = orjson.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
