"""PolicyException and ClusterPolicyException, from files and from the cluster.

A PolicyException in a namespace covers this namespace only. In a file it may be without a namespace, and then
is the same as a ClusterPolicyException: it covers the whole cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.base.text import did_you_mean, shown
from gateway.config.kinds.declare import (
    Boolean,
    Declared,
    Group,
    Row,
    Schema,
    Text,
    Texts,
    Type,
    declare,
    optional,
    required,
)
from gateway.config.kinds.metadata import LabelSelector, read_metadata
from gateway.config.kinds.names import (
    LABEL,
    LABEL_LENGTH,
    SUBDOMAIN,
    SUBDOMAIN_LENGTH,
    dns_1123_label,
    dns_1123_subdomain,
)
from gateway.config.kinds.validation import Rule, at_least_one
from gateway.config.yaml.fields import RFC_3339
from gateway.pure.core.exemptions import Match, Patterns, PolicyException
from gateway.pure.core.labels import EVERYTHING, Selector
from gateway.pure.core.workload import repository_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.config.yaml.fields import Check, Fields

NAMESPACED: Final = "PolicyException"
CLUSTER_WIDE: Final = "ClusterPolicyException"
_ENTRIES: Final = (1, 64)
"""Least and most entries of ``webhooks``, and of each list of ``match``."""
_MAX_PATTERN_CHARS: Final = 512
_MAX_REASON_CHARS: Final = 1024
_MAX_OWNER_CHARS: Final = 253
_GROUP: Final = rf"[a-z0-9]([-a-z0-9.]{{0,{SUBDOMAIN_LENGTH - 2}}}[a-z0-9])?"
KIND: Final = re.compile(rf"[A-Za-z][A-Za-z0-9]{{0,{LABEL_LENGTH - 1}}}(\.{_GROUP})?")


OWNER: Final = rf"{KIND.pattern}/([!-)+-.0-~]+[*]?|[*])"
_REGISTRY: Final = (
    r"(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]{1,5}|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?)"
)
_WORDS: Final = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
IMAGES: Final = rf"{_REGISTRY}/({_WORDS}(/{_WORDS})*|[a-z0-9._/-]*[*])"
"""A repository, or the beginning of one: the whole registry at least, because names that only begin like it
may be of anyone."""


_MOST_BEFORE: Final = 2
"""Namespace and policy, before a rule."""
_MAX_WEBHOOK_CHARS: Final = LABEL_LENGTH + 1 + SUBDOMAIN_LENGTH + 1 + SUBDOMAIN_LENGTH
_RULE: Final = r"[^/\x00-\x1f\x7f-\x9f]*[^/\x00-\x20\x7f-\xa0][^/\x00-\x1f\x7f-\x9f]*"
_WEBHOOK: Final = f"^({SUBDOMAIN}|({LABEL}/)?{SUBDOMAIN}/{_RULE})$"


def _kind_problem(text: str) -> str | None:
    if KIND.fullmatch(text):
        return None
    return f"found {shown(text)}, expected KIND or KIND.GROUP, such as Pod or Deployment.apps"


def webhook_name_problem(text: str) -> str | None:
    """Check the name of a webhook or policy, or of a rule of Kyverno after that of its policy.

    The namespace of a policy is in front of its name, and a rule may have any name in one line.
    """
    *before, rule = text.split("/")
    if not before:
        return dns_1123_subdomain(text)
    if (
        len(before) > _MOST_BEFORE
        or not rule.strip()
        or not rule.isprintable()
        or len(rule) > SUBDOMAIN_LENGTH
    ):
        return (
            f"found {shown(text)}, expected the name of a webhook, NAMESPACE/POLICY, POLICY/RULE or "
            "NAMESPACE/POLICY/RULE, in printable characters"
        )
    return dns_1123_subdomain(before[-1]) or (dns_1123_label(before[0]) if before[1:] else None)


def _line(limit: int) -> Text:
    """Return the type of a text in one line."""

    def check(text: str) -> str | None:
        if not text.strip() or len(text) > limit or not text.isprintable():
            return f"found {shown(text)}, expected 1 to {limit} printable characters in one line"
        return None

    pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$"
    words = f"string, at most {limit:,} characters"
    return Text(words, check, minLength=1, maxLength=limit, pattern=pattern)


def _names(words: str, check: Check, pattern: str, most: int = SUBDOMAIN_LENGTH) -> Texts:
    """Return the type of a list of names of at most *most* characters."""
    words = f"list of {_ENTRIES[0]} to {_ENTRIES[1]} {words}"
    return Texts(words, check, _ENTRIES, minLength=1, maxLength=most, pattern=pattern)


def _fits(pattern: str, expected: str) -> Check:
    """Return a check that an entry fits the *pattern*, of which *expected* has an example."""

    def check(text: str) -> str | None:
        if len(text) <= _MAX_PATTERN_CHARS and re.fullmatch(pattern, text):
            return None
        return f"found {shown(text)}, expected {expected}"

    return check


class _Patterns(Type["Patterns | None"]):
    """Names; ``*`` may end an entry. *check* is for the others."""

    def __init__(
        self,
        check: Check | None = None,
        pattern: str = r"^[^*\x00-\x1f\x7f-\x9f]*[*]?$",
        most: int = _MAX_PATTERN_CHARS,
    ) -> None:
        def check_entry(text: str) -> str | None:
            if not text or len(text) > _MAX_PATTERN_CHARS or not text.isprintable():
                return f"found {shown(text)}, expected 1 to {_MAX_PATTERN_CHARS} printable characters"
            if "*" in text[:-1]:
                return f"found {shown(text)}, expected * at the end only"
            return check(text) if check is not None and not text.endswith("*") else None

        self._texts = _names("names", check_entry, pattern, most)
        self.words = self._texts.words

    def read(self, source: Fields, name: str, default: Patterns | None) -> Patterns | None:
        entries = self._texts.read(source, name, ())
        return _patterns(entries) if entries else default

    def schema(self) -> Schema:
        return self._texts.schema()


def _patterns(entries: Iterable[str]) -> Patterns:
    prefixes = tuple(sorted(text[:-1] for text in entries if text.endswith("*")))
    return Patterns(frozenset(text for text in entries if not text.endswith("*")), prefixes)


@dataclass(frozen=True, slots=True)
class _Match(Declared):
    namespaces: Patterns | None = optional(
        _Patterns(dns_1123_label, rf"^({LABEL}|[-a-z0-9]*[*])$", SUBDOMAIN_LENGTH),
        "Namespaces of objects, and by name Namespaces themselves. `*` may end an entry. In a namespace it "
        "can only be this one",
    )
    names: Patterns | None = optional(_Patterns(), "Names of objects. `*` may end an entry")
    kinds: tuple[str, ...] = declare(
        _names("kinds", _kind_problem, f"^{KIND.pattern}$", LABEL_LENGTH + 1 + SUBDOMAIN_LENGTH),
        "`KIND` of any API group, or `KIND.GROUP`, as the client requested it. That of a subresource may be "
        "another: `PodExecOptions` for `pods/exec`",
        default=(),
    )
    namespace_selector: Selector = declare(
        LabelSelector(),
        "Labels of the namespace, and of a Namespace its own. Never matches other objects without a "
        "namespace",
        default=EVERYTHING,
    )
    object_selector: Selector = declare(
        LabelSelector(),
        "Labels of the object. On an update, of both the old and the new one",
        default=EVERYTHING,
    )
    users: Patterns | None = optional(_Patterns(), "User names. `*` may end an entry")
    groups: Patterns | None = optional(
        _Patterns(), "Groups, of which the user needs one. `*` may end an entry"
    )

    owners: tuple[str, ...] = declare(
        _names(
            "owners",
            _fits(OWNER, "KIND/NAME or KIND.GROUP/NAME, such as Deployment.apps/web"),
            f"^{OWNER}$",
            _MAX_PATTERN_CHARS,
        ),
        "`KIND/NAME` or `KIND.GROUP/NAME`: objects of this name, and those that [belong to "
        "them](exceptions.md#owners-and-images). `*` may end an entry. On an update, both the old and the "
        "new object",
        default=(),
    )
    images: tuple[str, ...] = declare(
        _names(
            "repositories",
            _fits(IMAGES, "REGISTRY/PATH without tag and digest, such as docker.io/library/nginx"),
            f"^{IMAGES}$",
            _MAX_PATTERN_CHARS,
        ),
        "`REGISTRY/PATH` of images, `*` may end an entry. [All images](exceptions.md#owners-and-images) of a "
        "Pod, or of the template of Pods, have to be in one of them. On an update, of both the old and the "
        "new object",
        default=(),
    )

    def check(self, source: Fields) -> None:
        """Warn of owners that anyone can write."""
        if self.owners and self.users is None and self.groups is None:
            source.problems.warn(
                source.at("owners"),
                "anyone who creates an object writes its ownerReferences: add users or groups, such as "
                "system:serviceaccount:kube-system:replicaset-controller",
            )

    def made(self) -> Match:
        """Return what the requests are matched with."""
        by_kind: dict[str, list[str]] = {}
        for owner in self.owners:
            kind, _, name = owner.partition("/")
            by_kind.setdefault(kind, []).append(name)
        # As images are compared: docker.io/nginx is docker.io/library/nginx.
        images = [text if text.endswith("*") else repository_of(text) or text for text in self.images]
        return Match(
            self.namespaces,
            self.names,
            frozenset(self.kinds) or None,
            self.users,
            self.groups,
            self.namespace_selector,
            self.object_selector,
            tuple((kind, _patterns(names)) for kind, names in by_kind.items()) or None,
            _patterns(images) if images else None,
        )


_FIELDS: Final = tuple(_Match.schema()["properties"])
_SELECTS_EVERYTHING: Final = (
    f"selects everything, expected at least one of {', '.join(_FIELDS)}; users: ['*'] is everything"
)


@dataclass(frozen=True, slots=True)
class _ClusterMatch(_Match):
    RULES = (at_least_one(_FIELDS, _SELECTS_EVERYTHING),)

    def check(self, source: Fields) -> None:
        """Report selectors without a condition, and warn if a writer of an object chooses the exception."""
        _Match.check(self, source)
        match = self.made()
        if match == Match():
            if any(map(source.has, _FIELDS)):
                source.problems.add(source.path, _SELECTS_EVERYTHING)
        elif _is_open_to_all(match):
            source.problems.warn(
                source.path,
                "anyone can choose the name, the labels, the owners and the images of an object: add "
                "namespaces, users or groups, unless everyone may have the exception",
            )


def _is_open_to_all(match: Match) -> bool:
    """Whether the writer of an object decides whether *match*, without a namespace, selects it."""
    is_limited = match.namespaces or match.users or match.groups or not match.namespace_selector.is_empty
    is_chosen = match.names is not None or match.owners is not None or match.images is not None
    return not is_limited and (is_chosen or not match.object_selector.is_empty)


class _Limits(Group[_Match]):
    """The match of an exception without a namespace."""

    def read_required(self, source: Fields, name: str) -> _Match:
        if source.has(name):
            return self.read(source, name, _Match())
        source.problem(name, "is required: without a namespace the exception would cover everything")
        return _Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionSpec(Declared):
    """The spec of an exception in a namespace."""

    RULES = (
        Rule(
            "has(self.expires) || (has(self.permanent) && self.permanent)",
            "is required, unless the exception is permanent: true",
            about=("expires",),
            at="expires",
            holds_with=(1,),
        ),
        Rule(
            "!has(self.expires) || !has(self.permanent) || !self.permanent",
            "is not allowed together with permanent: true",
            about=("expires", "permanent"),
            at="expires",
            holds_with=(0, 1),
        ),
    )
    webhooks: tuple[str, ...] = required(
        _names("names", webhook_name_problem, _WEBHOOK, _MAX_WEBHOOK_CHARS),
        "Full names of webhooks and policies",
    )
    match: _Match = declare(
        Group(_Match),
        "The requests: every field has to match. Without a namespace it is required, with at least one field",
        default=_Match(),
    )
    reason: str = required(_line(_MAX_REASON_CHARS), "Why. One line")
    owner: str = required(_line(_MAX_OWNER_CHARS), "Who is responsible. One line")
    expires: str = declare(
        Text("time by RFC 3339", maxLength=64, pattern=f"^{RFC_3339.pattern}$", format="date-time"),
        "From then on the webhooks are called again. Required unless `permanent` is true",
        default="",
    )
    permanent: bool = declare(Boolean(), "Whether there is no end", default=False)

    expires_at: float | None = None
    """The end in seconds since 1970."""

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the end as it is written, and in seconds."""
        if not source.has("expires"):
            return {}
        return {"expires": str(source.content["expires"]), "expires_at": source.time("expires", 0.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterExceptionSpec(ExceptionSpec):
    """The spec of an exception without a namespace."""

    match: _Match = required(_Limits(_ClusterMatch), "The requests: every field has to match")


def rows() -> Iterator[Row]:
    """Yield the rows of the documentation."""
    yield Row("metadata.name", "name", "required", "Both kinds share their names")
    about = "Of a PolicyException. Absent, in a file only: the whole cluster"
    yield Row("metadata.namespace", "name", "none", about)
    yield from ExceptionSpec.rows("spec.")


def read_policy_exception(fields: Fields, kind: str) -> PolicyException:
    """Return the exception of *kind* behind *fields*; with placeholders if there are problems."""
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=kind == NAMESPACED)
    source = fields.required_mapping("spec")
    fields.finish()
    if source is None:
        return PolicyException(metadata.name, metadata.namespace, (), Match(), "", "", "", None)
    spec = (ExceptionSpec if metadata.namespace else ClusterExceptionSpec).read(source)
    if metadata.namespace and spec.match.namespaces is not None:
        _check_namespaces(source.group("match"), metadata.namespace)
    return PolicyException(
        metadata.name,
        metadata.namespace,
        spec.webhooks,
        spec.match.made(),
        spec.reason,
        spec.owner,
        spec.expires,
        spec.expires_at,
    )


def _check_namespaces(match: Fields, namespace: str) -> None:
    found = match.content.get("namespaces")
    for index, text in enumerate(found if isinstance(found, list) else ()):
        if text != namespace and isinstance(text, str):
            message = f"found {shown(text)}, expected {shown(namespace)}: the exception is in this namespace"
            match.problems.add(f"{match.at('namespaces')}[{index}]", f"{message}, and covers no other")


def unknown_webhooks(names: Iterable[str], known: frozenset[str]) -> Iterator[str]:
    """Yield a sentence for each of the *names* of webhooks that is not among *known*."""
    for name in names:
        if name not in known:
            yield f"there is no webhook {shown(name)}{did_you_mean(name, known)}"
