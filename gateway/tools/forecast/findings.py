"""What an upgrade to a version of Kubernetes changes, found in a configuration and in objects.

Nothing is called: the tables of this package say what the version serves and knows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import orjson

from admission_gateway_worker.text import printable
from gateway.base.text import shown
from gateway.config.merge.mutating_order import functions_of
from gateway.config.merge.placement import expressions_in
from gateway.config.yaml.documents import ADMISSION_GROUP, PHASES
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.introduced import introduced
from gateway.pure.core.overlap import parts
from gateway.pure.core.rules import NEVER_SENT_RESOURCES
from gateway.pure.core.webhook import PolicyRef, Rule
from gateway.pure.workloads.default_rules import part
from gateway.pure.workloads.defaults import kind_of
from gateway.tools.forecast.fields import NEWEST, OLDEST, unknown_fields
from gateway.tools.forecast.kinds import lifecycles, removed, resources
from gateway.tools.forecast.pod_fields import undecidable, unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.merge.model import Config
    from gateway.pure.core.review import Json
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.forecast.kinds import Lifecycle

Level = Literal["error", "warning", "note"]
_VERSION: Final = re.compile(r"v?1\.([1-9][0-9])(\.(0|[1-9][0-9]{0,2}))?", re.ASCII)
_NEVER_SENT_FROM: Final = 37
"""The minor version from which API servers call no webhook for reviews of access and tokens."""
_QUANTITIES_FROM: Final = 37
"""The minor version from which ``add`` and ``sub`` do not change their operand."""
_IN_DOCUMENTS: Final = frozenset({"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"})
"""The policies whose expressions API servers compile, too."""
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_RULES: Final = 100
"""Of one webhook that are told."""
_MAX_NAMES: Final = 3
_MAX_TEXT_CHARS: Final = 500


RuleName = Literal[
    "forecast-removed-api",
    "forecast-deprecated-api",
    "forecast-unknown-field",
    "forecast-writer",
    "forecast-rule",
    "forecast-expression",
    "forecast-unread-field",
    "forecast-answer",
    "forecast-live-use",
    "forecast-limits",
]
RULES: Final[Mapping[RuleName, str]] = {
    "forecast-removed-api": "The version of Kubernetes does not serve the apiVersion of the object.",
    "forecast-deprecated-api": "A later version of Kubernetes removes the apiVersion of the object.",
    "forecast-unknown-field": "The version of Kubernetes does not know a field of the object.",
    "forecast-writer": "A client has written the object in an apiVersion that is removed.",
    "forecast-rule": "A rule has resources for which the version of Kubernetes calls no webhook.",
    "forecast-expression": "API servers of the version refuse an expression, or evaluate it otherwise.",
    "forecast-unread-field": "Pods of the version have a field that no policy reads.",
    "forecast-answer": "The version of Kubernetes gets another answer about the object.",
    "forecast-live-use": "Clients request what the version of Kubernetes does not serve.",
    "forecast-limits": "Something about the version of Kubernetes is not known.",
}
"""What finds something. The names are stable: alerts of code scanning belong to them."""


class Finding(NamedTuple):
    """One change."""

    level: Level
    """Error: an API server of the version refuses it, or a webhook is not called any more."""
    rule: RuleName
    where: str
    """The object, or the webhook with its field."""
    message: str
    field: str = ""
    """The path of the field in the object or in the document of the configuration. Empty for all of it."""
    source: tuple[str, str, str] = ("", "", "")
    """Kind and name of the document of the configuration, and the name of the webhook in it."""

    def line(self, place: str = "") -> str:
        """Return it as one line for people. *place* is where it is written, if that is known."""
        before = f"{self.level}: {place}: " if place else f"{self.level}: "
        return f"{before}{printable(self.where, _MAX_TEXT_CHARS)}: {self.message}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"level": self.level, "rule": self.rule, "where": self.where, "message": self.message}


class Writer(NamedTuple):
    """A client, or a file, that has a version which is removed."""

    name: str
    api_version: str
    kind: str

    @property
    def message(self) -> str:
        """What it did, and what to do."""
        return (
            f"{shown(self.name)} has written it as {self.api_version}, which is removed; upgrade that client"
        )


def minor_of(text: str) -> int:
    """Return the minor version of *text*, such as 38 of ``1.38``.

    Raises:
        ValueError: it is no version of Kubernetes.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"found {shown(text)}, expected a version of Kubernetes such as 1.38")
    return int(found[1])


def limits(kubernetes: int) -> Iterator[Finding]:
    """Yield what is not known about Kubernetes 1.*kubernetes*."""
    where = f"Kubernetes 1.{kubernetes}"
    if kubernetes > NEWEST:
        message = f"its fields are not known, and its kinds are those that 1.{NEWEST} announces"
        yield Finding("note", "forecast-limits", where, message)
    elif kubernetes < OLDEST:
        message = f"its fields are not known; those of 1.{OLDEST} to 1.{NEWEST} are"
        yield Finding("note", "forecast-limits", where, message)


def of_config(config: Config, kubernetes: int) -> Iterator[Finding]:
    """Yield what Kubernetes 1.*kubernetes* changes for *config*."""
    seen = set()
    for webhook in config.webhooks:
        for one in (*_of_rules(webhook, kubernetes), *_of_expressions(webhook, kubernetes)):
            if one not in seen:
                seen.add(one)
                yield one
    for field in unread(config, kubernetes):
        webhook = field.webhook
        where, source = _title(webhook), _source(webhook)
        yield Finding("note", "forecast-unread-field", where, field.message, "", source)
    if unknown := undecidable(config):
        names = sorted({shown(each.name) for each in unknown})
        more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
        told = ", ".join(names[:_MAX_NAMES])
        message = f"what webhooks for Pods read that have no expressions is not decidable: {told}{more}"
        yield Finding("note", "forecast-limits", f"Kubernetes 1.{kubernetes}", message)


def of_object(found: Json, kubernetes: int) -> Iterator[Finding]:
    """Yield what Kubernetes 1.*kubernetes* does not serve or know of *found*."""
    kind = kind_of(found)
    api_version = found.get("apiVersion")
    known = lifecycles().get((api_version, kind.kind)) if isinstance(api_version, str) else None
    about = _named(found)
    if known is not None:
        yield from _of_lifecycle(about, known, kubernetes)
    for path, reason in unknown_fields(found, kubernetes):
        message = f"{shown(path)}: {reason}; the API server drops it, or refuses it with strict validation"
        yield Finding("warning", "forecast-unknown-field", about, message, path)
    for path, rule in _rules_in(found):
        for one in _of_rule(f"{about}: {path}", rule, kubernetes):
            yield one._replace(field=path)
    for writer in sorted(set(writers(found, kubernetes))):
        yield Finding("warning", "forecast-writer", about, writer.message, "metadata")


def _named(found: Json) -> str:
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    namespace = metadata.get("namespace")
    path = f"{namespace}/{name}" if namespace else f"{name}"
    return f"{kind_of(found).kind} {path}".strip()


def _of_lifecycle(where: str, known: Lifecycle, kubernetes: int) -> Iterator[Finding]:
    name = f"{known.kind} of {known.api_version}"
    if known.removed is not None and known.removed <= kubernetes:
        instead = known.instead(kubernetes)
        message = f"1.{known.removed} removes {name}{instead}"
        yield Finding("error", "forecast-removed-api", where, message, "apiVersion")
    elif (known.introduced or 0) > kubernetes:
        message = f"1.{kubernetes} does not have {name}, which 1.{known.introduced} adds"
        yield Finding("error", "forecast-removed-api", where, message, "apiVersion")
    elif known.deprecated is not None and known.deprecated <= kubernetes:
        end = f", and 1.{known.removed} removes it" if known.removed else ""
        message = f"{name} is deprecated since 1.{known.deprecated}{end}{known.instead(kubernetes)}"
        yield Finding("warning", "forecast-deprecated-api", where, message, "apiVersion")


def writers(found: Json, kubernetes: int) -> Iterator[Writer]:
    """Yield who has written *found*, an object of a cluster, in a version that is removed."""
    group, _, kind = kind_of(found)
    if not group:
        return  # The core group has one version.
    gone = removed(group, kind, kubernetes)
    metadata = found.get("metadata")
    if not gone or not isinstance(metadata, dict):
        return
    managed, annotations = metadata.get("managedFields"), metadata.get("annotations")
    for each in managed if isinstance(managed, list) else ():
        match each:
            case {"manager": str(manager), "apiVersion": str(version)} if version in gone:
                yield Writer(manager, version, kind)
    applied = annotations.get(_APPLIED) if isinstance(annotations, dict) else None
    if isinstance(applied, str) and any(version in applied for version in gone):
        try:
            document = orjson.loads(applied)
        except ValueError:
            return
        match document:
            case {"apiVersion": str(version)} if version in gone:
                yield Writer("a file of kubectl apply", version, kind)


def _of_rules(webhook: Webhook, kubernetes: int) -> Iterator[Finding]:
    for index, rule in enumerate(webhook.rules[:_MAX_RULES]):
        field = f"{_rules_of(webhook)}[{index}]"
        for one in _of_rule(f"{_title(webhook)}: rules[{index}]", rule, kubernetes):
            yield one._replace(field=field, source=_source(webhook))


def _of_rule(where: str, rule: Rule, kubernetes: int) -> Iterator[Finding]:
    for group in rule.api_groups:
        for entry in rule.resources:
            resource, sub_resource = parts(entry)
            if (group, resource) in NEVER_SENT_RESOURCES and kubernetes >= _NEVER_SENT_FROM:
                message = f"API servers call no webhook for {resource} from 1.{_NEVER_SENT_FROM} on"
                yield Finding("note", "forecast-rule", where, message)
            elif group != "*" and "*" not in rule.api_versions and sub_resource in ("", "*", "status"):
                yield from _of_resource(where, rule, group, resource, kubernetes)


def _rules_in(found: Json) -> Iterator[tuple[str, Rule]]:
    """Yield the rules of *found*, a webhook configuration or an admission policy, with their paths."""
    group, _, kind = kind_of(found)
    if group != ADMISSION_GROUP:
        return
    lists = []
    if kind.endswith("WebhookConfiguration"):
        webhooks = found.get("webhooks")
        for index, each in enumerate(webhooks if isinstance(webhooks, list) else ()):
            if isinstance(each, dict):
                lists.append((f"webhooks[{index}].rules", each.get("rules")))
    else:
        constraints = part(found, "spec", "matchConstraints")
        lists.append(("spec.matchConstraints.resourceRules", constraints.get("resourceRules")))
    for path, rules in lists:
        for index, each in enumerate(rules[:_MAX_RULES] if isinstance(rules, list) else ()):
            if isinstance(each, dict):
                groups, versions = _texts(each.get("apiGroups")), _texts(each.get("apiVersions"))
                yield f"{path}[{index}]", Rule(("*",), groups, versions, _texts(each.get("resources")))


def _texts(found: object) -> tuple[str, ...]:
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def _of_resource(where: str, rule: Rule, group: str, resource: str, kubernetes: int) -> Iterator[Finding]:
    """Yield what happens to *rule* for *resource* of *group*; ``*`` stands for all of its versions."""
    named = [
        one
        for version in rule.api_versions
        for name, one in resources(group, version).items()
        if resource in ("*", name)
    ]
    if not named:
        return
    what = f"{'resources' if resource == '*' else resource} of {group or 'the core group'}"
    served = [one for one in named if one.is_served(kubernetes)]
    versions = ", ".join(dict.fromkeys(one.version for one in named))
    if not served:
        instead = named[-1].instead(kubernetes)
        # An API server finds equivalent versions only of versions that it serves.
        message = (
            f"1.{kubernetes} serves {what} in none of the versions {versions}: it is not called for them"
        )
        yield Finding("error", "forecast-rule", where, f"{message}{instead}")
        return
    of_served = {one.kind for one in served}
    gone = dict.fromkeys(one.version for one in named if one.kind in of_served and one not in served)
    for version in gone:
        message = f"1.{kubernetes} does not serve {what} in {version}; the rest is served"
        yield Finding("note", "forecast-rule", where, message)


def _of_expressions(webhook: Webhook, kubernetes: int) -> Iterator[Finding]:
    title, source = _title(webhook), _source(webhook)
    found = [
        (f"matchConditions {shown(name)}", "matchConditions", text)
        for name, text in (webhook.match_conditions.expressions if webhook.match_conditions else ())
    ]
    client = webhook.client
    if isinstance(client, PolicyRef) and client.kind in _IN_DOCUMENTS:
        [(_, document), *_] = client.policy.expressions
        found += [(path, path, text) for path, text in expressions_in(orjson.loads(document), "spec")]
    for path, field, text in found:
        try:
            used, functions = sorted(set(introduced(text))), functions_of(text)
        except InvalidExpression:
            continue  # of another dialect
        where = f"{title}: {path}"
        for name, first in used:
            if kubernetes < first:
                message = f"it uses {name}, which API servers accept in new objects from 1.{first} on"
                yield Finding("warning", "forecast-expression", where, message, field, source)
        if kubernetes < _QUANTITIES_FROM and not functions.isdisjoint(("add", "sub")):
            message = f"adding and subtracting quantities may change the operand before 1.{_QUANTITIES_FROM}"
            yield Finding("warning", "forecast-expression", where, message, field, source)


def _rules_of(webhook: Webhook) -> str:
    return "spec.matchConstraints.resourceRules" if isinstance(webhook.client, PolicyRef) else "rules"


def _source(webhook: Webhook) -> tuple[str, str, str]:
    """Return kind and name of the document of *webhook*, and its name there, if it has one of its own."""
    client = webhook.client
    if isinstance(client, PolicyRef):
        return client.kind, webhook.configuration, ""
    kind = next(kind for kind, phase in PHASES.items() if phase == webhook.phase)
    return kind, webhook.configuration, webhook.name


def _title(webhook: Webhook) -> str:
    client = webhook.client
    if isinstance(client, PolicyRef):
        return f"{client.kind} {shown(webhook.configuration)}"
    return f"{webhook.phase} {shown(f'{webhook.configuration}/{webhook.name}')}"
