"""PolicyException and ClusterPolicyException, from files and from the cluster.

A PolicyException in a namespace covers this namespace only. In a file it may be without a namespace, and then
is the same as a ClusterPolicyException: it covers the whole cluster.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from gateway.base.text import did_you_mean, shown
from gateway.config.kinds.metadata import read_metadata, read_selector
from gateway.config.kinds.names import LABEL_LENGTH, SUBDOMAIN_LENGTH, dns_1123_label, dns_1123_subdomain
from gateway.pure.core.exemptions import Match, Patterns, PolicyException

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.config.yaml.fields import Check, Fields

NAMESPACED: Final = "PolicyException"
CLUSTER_WIDE: Final = "ClusterPolicyException"
MAX_ENTRIES: Final = 64
"""Entries of ``webhooks``, and of each list of ``match``."""
MAX_PATTERN_CHARS: Final = 512
MAX_REASON_CHARS: Final = 1024
MAX_OWNER_CHARS: Final = 253
_GROUP: Final = rf"[a-z0-9]([-a-z0-9.]{{0,{SUBDOMAIN_LENGTH - 2}}}[a-z0-9])?"
KIND: Final = rf"[A-Za-z][A-Za-z0-9]{{0,{LABEL_LENGTH - 1}}}(\.{_GROUP})?"
TIMESTAMP: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_KIND: Final = re.compile(KIND)
_TIMESTAMP: Final = re.compile(TIMESTAMP)
MATCH_FIELDS: Final = (
    "namespaces",
    "names",
    "kinds",
    "namespaceSelector",
    "objectSelector",
    "users",
    "groups",
)


def parse_timestamp(text: str) -> float:
    """Return the seconds since 1970 of *text*, a time by RFC 3339 such as ``2026-12-01T00:00:00Z``.

    Raises:
        ValueError: it is not one.
    """
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(text).timestamp()


def read_policy_exception(fields: Fields, kind: str) -> PolicyException:
    """Return the exception of *kind* behind *fields*; with placeholders if there are problems."""
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=kind == NAMESPACED)
    spec = fields.required_mapping("spec")
    fields.finish()
    if spec is None:
        return PolicyException(metadata.name, metadata.namespace, (), Match(), "", "", "", None)
    expires, expires_at = _read_end(spec)
    exception = PolicyException(
        metadata.name,
        metadata.namespace,
        webhooks=_read_webhooks(spec),
        match=_read_match(spec, metadata.namespace),
        reason=spec.required_string("reason", _text(MAX_REASON_CHARS)),
        owner=spec.required_string("owner", _text(MAX_OWNER_CHARS)),
        expires=expires,
        expires_at=expires_at,
    )
    spec.finish()
    return exception


def _read_webhooks(spec: Fields) -> tuple[str, ...]:
    names = _entries(spec, "webhooks", dns_1123_subdomain)
    if not spec.has("webhooks"):
        spec.problem("webhooks", "is required, expected the full names of webhooks")
    return names


def _read_end(spec: Fields) -> tuple[str, float | None]:
    """Return the end as written, and in seconds since 1970; empty and None if the exception is permanent."""
    is_permanent = spec.boolean("permanent")
    text = spec.string("expires", None)
    if text is None:
        if not is_permanent and not spec.has("expires"):
            spec.problem("expires", "is required, unless the exception is permanent: true")
        return "", None
    if is_permanent:
        spec.problem("expires", "is not allowed together with permanent: true")
    try:
        return text, parse_timestamp(text)
    except ValueError:
        expected = "a time by RFC 3339 such as 2026-12-01T00:00:00Z"
        spec.problem("expires", f"found {shown(text)}, expected {expected}")
    return "", None


def _read_match(spec: Fields, namespace: str) -> Match:
    fields = spec.mapping("match")
    if fields is None:
        if not namespace:
            spec.problem("match", "is required: without a namespace the exception would cover everything")
        return Match()
    kinds = _entries(fields, "kinds", _kind)
    match = Match(
        namespaces=_read_patterns(fields, "namespaces", dns_1123_label),
        names=_read_patterns(fields, "names"),
        kinds=frozenset(kinds) or None,
        users=_read_patterns(fields, "users"),
        groups=_read_patterns(fields, "groups"),
        namespace_selector=read_selector(fields.mapping("namespaceSelector")),
        object_selector=read_selector(fields.mapping("objectSelector")),
    )
    fields.finish()
    if namespace:
        _check_namespaces(fields, namespace)
    elif match == Match():
        message = f"selects everything, expected at least one of {', '.join(MATCH_FIELDS)}"
        spec.problems.add(fields.path, f"{message}; users: ['*'] is everything")
    elif _is_open_to_all(match):
        spec.problems.warn(
            fields.path,
            "anyone can choose the name and the labels of an object: add namespaces, users or groups, "
            "unless everyone may have the exception",
        )
    return match


def _is_open_to_all(match: Match) -> bool:
    """Whether the writer of an object decides whether *match*, without a namespace, selects it."""
    is_limited = match.namespaces or match.users or match.groups or not match.namespace_selector.is_empty
    return not is_limited and (match.names is not None or not match.object_selector.is_empty)


def _check_namespaces(fields: Fields, namespace: str) -> None:
    for path, text in fields.indexed_strings("namespaces"):
        if text != namespace:
            message = f"found {shown(text)}, expected {shown(namespace)}: the exception is in this namespace"
            fields.problems.add(path, f"{message}, and covers no other")


def _read_patterns(fields: Fields, name: str, check: Check | None = None) -> Patterns | None:
    def check_entry(text: str) -> str | None:
        if not text or len(text) > MAX_PATTERN_CHARS or not text.isprintable():
            return f"found {shown(text)}, expected 1 to {MAX_PATTERN_CHARS} printable characters"
        if "*" in text[:-1]:
            return f"found {shown(text)}, expected * at the end only"
        return check(text) if check is not None and not text.endswith("*") else None

    entries = _entries(fields, name, check_entry)
    if not entries:
        return None
    prefixes = tuple(sorted(text[:-1] for text in entries if text.endswith("*")))
    return Patterns(frozenset(text for text in entries if not text.endswith("*")), prefixes)


def _entries(fields: Fields, name: str, check: Check) -> tuple[str, ...]:
    """Return the texts in a list that, if it is there, has to have an entry."""
    value = fields.content.get(name)
    if isinstance(value, list) and not 0 < len(value) <= MAX_ENTRIES:
        fields.problem(name, f"found {len(value)} entries, expected 1 to {MAX_ENTRIES}")
        fields.accept(name)
        return ()
    return fields.strings(name, check)


def _kind(text: str) -> str | None:
    if _KIND.fullmatch(text):
        return None
    return f"found {shown(text)}, expected KIND or KIND.GROUP, such as Pod or Deployment.apps"


def _text(limit: int) -> Check:
    def check(text: str) -> str | None:
        if not text.strip() or len(text) > limit or not text.isprintable():
            return f"found {shown(text)}, expected 1 to {limit} printable characters in one line"
        return None

    return check


def unknown_webhooks(names: Iterable[str], known: frozenset[str]) -> Iterator[str]:
    """Yield a sentence for each of the *names* of webhooks that is not among *known*."""
    for name in names:
        if name not in known:
            yield f"there is no webhook {shown(name)}{did_you_mean(name, known)}"
