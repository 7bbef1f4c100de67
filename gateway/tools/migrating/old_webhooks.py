"""The registered webhooks of an engine: as a configuration of the gateway, alone and with candidates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.tools.importing.notes import warnings
from gateway.tools.importing.objects import cleaned, file_name, name_of, title
from gateway.tools.importing.prepare import prepare, read_texts, with_followed_bundles
from gateway.tools.migrating.engines import engine_of, policy_of
from gateway.tools.migrating.reading import services_of
from gateway.tools.registration.gateway_entries import entries
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gateway.base.errors import Problem
    from gateway.tools.migrating.engines import Engine

    Json = dict[str, Any]


DEFAULT_TIMEOUT_S: Final = 3
"""Of ``policies.engines.gatekeeper``, as Gatekeeper registers itself."""
_DEFAULT_OF_WEBHOOKS_S: Final = 10


@dataclass(slots=True)
class OldWebhooks:
    """The webhooks of one engine."""

    engine: Engine
    registered: list[Json] = field(default_factory=list)
    """The objects as they are, all of them."""
    documents: list[Json] = field(default_factory=list)
    """Those with webhooks that something takes the place of, without the others."""
    candidates: list[Json] = field(default_factory=list)
    """The same with the worker's policy as the candidate of each webhook."""
    notes: list[str] = field(default_factory=list)
    """What is left out, and what to know of the others."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def services(self) -> list[tuple[str, str, int]]:
        """Namespace, name and port of their Services."""
        return list(dict.fromkeys(service for one in self.documents for service in services_of(one)))

    def settings(self) -> Json:
        """Return how the engine is called for ``policies.engines``, where that is not the default.

        Its policies do not say it themselves if the engine registers all of them in one webhook.
        """
        if not self.engine.is_one_webhook:
            return {}
        called = [entry for one in self.documents for entry in entries(one)]
        found: Json = {}
        if any(one.get("failurePolicy", "Fail") == "Fail" for one in called):
            found["failurePolicy"] = "Fail"
        seconds = max((_seconds(one) for one in called), default=DEFAULT_TIMEOUT_S)
        if seconds > DEFAULT_TIMEOUT_S:
            found["timeoutSeconds"] = seconds
        return found

    @property
    def has_candidates(self) -> bool:
        """Whether any webhook has a candidate."""
        return any("rollout" in entry for one in self.candidates for entry in entries(one))


def _seconds(entry: Mapping[str, Any]) -> int:
    found = entry.get("timeoutSeconds")
    return found if isinstance(found, int) else _DEFAULT_OF_WEBHOOKS_S


def of_engine(engine: Engine, webhooks: Iterable[Json]) -> OldWebhooks:
    """Return the webhooks of *engine* among the webhook configurations *webhooks*."""
    found = OldWebhooks(engine, [one for one in webhooks if engine_of(one) == engine.name])
    policies = [[policy_of(engine.name, one, entry) for entry in entries(one)] for one in found.registered]
    # Two webhooks of one phase share the engine's policies in a way that only the engine knows.
    shared = Counter(policy for each in policies for policy in each if policy)
    for document, named in zip(found.registered, policies, strict=True):
        _divide(found, document, named, {policy for policy, number in shared.items() if number > 1})
    prepared = prepare(found.documents, as_resource=False)
    for one in prepared:
        found.problems += one.problems
    if prepared and not found.problems:
        # Warnings of the configuration are about what the engine registers.
        config = replace(read_texts(one.text for one in prepared), warnings=())
        found.notes += [
            " ".join(map(str.strip, one.lines())) for one in warnings(found.documents, config, [])
        ]
    return found


def _divide(found: OldWebhooks, document: Json, policies: Sequence[str], shared: Collection[str]) -> None:
    kept, tried = [], []
    for entry, policy in zip(entries(document), policies, strict=True):
        name = f"{title(document)}: {entry.get('name')}"
        if not policy:
            found.notes.append(f"{name} is for objects of {found.engine.title} itself, and is left out")
            continue
        kept.append(entry)
        if why_not := _no_candidate(entry, policy, shared):
            found.notes.append(f"{name} has no candidate: {why_not}")
            tried.append(entry)
            continue
        worker = {"pool": found.engine.name, "policy": policy}
        tried.append({**entry, "rollout": {"candidate": {"clientConfig": {"worker": worker}}}})
    if kept:
        found.documents.append({**document, "webhooks": kept})
        found.candidates.append({**document, "webhooks": tried})


def _no_candidate(entry: Mapping[str, Any], policy: str, shared: Collection[str]) -> str:
    """Return why the *entry* has no candidate. Empty if it has one."""
    if policy in shared:
        return "several webhooks share the policies of this phase"
    effects = entry.get("sideEffects")
    if effects != "None":
        return f"its sideEffects are {effects}, and the calls of a candidate are additional ones"
    return ""


def texts(documents: Iterable[Json]) -> dict[str, str]:
    """Return webhook configurations as files of the gateway's configuration."""
    return {file_name(one): to_yaml(_written(one)) for one in documents}


def registered_texts(documents: Iterable[Json]) -> dict[str, str]:
    """Return the objects *documents* as files for ``kubectl apply``."""
    return {file_name(one): to_yaml(cleaned(one, as_resource=False)) for one in documents}


def chart_values(documents: Iterable[Json]) -> Json:
    """Return webhook configurations as values of the chart."""
    values: Json = {}
    for one in documents:
        kind = str(one["kind"])
        named = values.setdefault(f"{kind[0].lower()}{kind[1:]}s", {})
        named[name_of(one)] = _written(one)["webhooks"]
    return values


def _written(document: Mapping[str, Any]) -> Json:
    return cleaned(with_followed_bundles(dict(document)), as_resource=False)
