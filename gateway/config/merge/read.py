"""Documents of one configuration to one ``Config``, or to all problems of the documents at once.

Each document is read by itself (``gateway.config.kinds``). Checks across documents are here: duplicate
names, and references to pools that do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import orjson

from gateway.base.errors import ConfigError, Problem
from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.kinds.client_config import NO_CLUSTER_TO_FOLLOW
from gateway.config.kinds.gateway_configuration import GatewaySettings, read_gateway_configuration
from gateway.config.kinds.namespace import read_namespace
from gateway.config.kinds.policy_exception import (
    CLUSTER_WIDE,
    NAMESPACED,
    read_policy_exception,
    unknown_webhooks,
)
from gateway.config.kinds.webhook_configuration import (
    WEBHOOK_VERSIONS,
    WebhookConfiguration,
    read_webhook_configuration,
)
from gateway.config.kinds.worker_pool import WorkerPool, read_worker_pool
from gateway.config.merge.following import leave_out_following
from gateway.config.merge.model import Config
from gateway.config.merge.policy_authors import AUTHORS, authors_policy
from gateway.config.merge.policy_documents import PolicyDocuments
from gateway.config.yaml.documents import (
    ADMISSION_GROUP,
    CUSTOM_KINDS,
    GATEWAY_VERSION,
    PHASES,
    POLICY,
    POLICY_KINDS,
    POLICY_TEST,
    Document,
)
from gateway.config.yaml.fields import MAX_PROBLEMS, child
from gateway.pure.core import call_order
from gateway.pure.core.webhook import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.config.merge.policy_documents import Readable
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import Phase, Webhook

NO_AUTHORIZER = (
    "found authorizer, which requires a cluster; expected GatewayConfiguration.kubernetes to name one"
)

_KIND_OF = {phase: kind for kind, phase in PHASES.items()}
_KUBERNETES_VERSIONS = (f"{ADMISSION_GROUP}/v1", f"{ADMISSION_GROUP}/v1beta1")
_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PHASES, tuple(WEBHOOK_VERSIONS)),
    "WorkerPool": (GATEWAY_VERSION,),
    **dict.fromkeys((NAMESPACED, CLUSTER_WIDE, "GatewayConfiguration"), (GATEWAY_VERSION,)),
    "Namespace": ("v1",),
    POLICY_TEST: (GATEWAY_VERSION,),
    **dict.fromkeys(
        (*POLICY_KINDS, *POLICY_KINDS.values()),
        (*_KUBERNETES_VERSIONS, f"{ADMISSION_GROUP}/v1alpha1", GATEWAY_VERSION),
    ),
}
"""Each kind with its versions."""


@dataclass(slots=True)
class _Collected:
    """The objects read so far, with placeholders where there are problems."""

    configurations: list[WebhookConfiguration] = field(default_factory=list)
    references: list[tuple[Document, str, str]] = field(default_factory=list)
    """Document, path and pool name of every reference to a WorkerPool."""
    afters: list[tuple[Document, str, Webhook]] = field(default_factory=list)
    """Document and path of every ``after``, and its webhook."""
    need_cluster: list[tuple[Document, str, str]] = field(default_factory=list)
    """Document, path and message of everything that requires a cluster."""
    pools: dict[str, WorkerPool] = field(default_factory=dict)
    exceptions: list[tuple[Document, PolicyException]] = field(default_factory=list)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    policies: PolicyDocuments = field(default_factory=PolicyDocuments)
    first_of: dict[tuple[str, str], Document] = field(default_factory=dict)
    """By kind and name. The name of a GatewayConfiguration is empty here, since there is only one."""


def read(found: Iterable[Document], readable: Readable | None = None, servers: Iterable[str] = ()) -> Config:
    """Return the configuration in the documents *found*.

    Expressions may read objects of the kinds that its GatewayConfiguration lists, or those in *readable*:
    then something else than the configuration says where they are. They may also get data from *servers*,
    which are URLs.

    Raises:
        ConfigError: as :func:`load`.
    """
    documents: list[Document] = []
    collected = _Collected()
    count = 0
    for document in found:
        documents.append(document)
        if document.content is not None:
            _read(document, collected)
        count += len(document.problems.found)
        if count >= MAX_PROBLEMS:
            raise _too_many(documents)
    has_cluster = collected.gateway.kubernetes is not None or readable is not None
    if readable is None:
        readable = collected.gateway.policies.readable
    kinds = frozenset(collected.policies.object_kinds(readable))
    params = _objects(collected, readable)
    if sum(len(each.problems.found) for each in documents) >= MAX_PROBLEMS:
        raise _too_many(documents)
    for document, path, pool in collected.references:
        if ("WorkerPool", pool) not in collected.first_of and not document.problems.is_full:
            hint = did_you_mean(pool, collected.pools)
            document.problems.add(path, f"there is no WorkerPool {shown(pool)}{hint}", lacks=pool)
    collected.need_cluster.extend(collected.policies.need_cluster(NO_AUTHORIZER, params))
    _check_cluster(collected)
    backends = {url: url for url in servers}
    backends |= {one.name: one.url for one in collected.gateway.policies.backends}
    bound = collected.policies.bound(
        params,
        readable,
        has_cluster=has_cluster,
        backends=backends,
        engines=collected.gateway.policies.engines,
    )
    leave_out_following(documents, collected.first_of)
    # If there are problems, the name of a webhook that could not be read would be another one.
    problems = (
        _problems(documents)
        or _problems_of_order(documents, collected)
        or _problems_of_names(documents, collected, bound)
    )
    if problems:
        raise ConfigError(problems)
    _warn_if_all_are_left(collected)
    collected.policies.warn_of_settings(collected.gateway.policies)
    warnings = [warning for document in documents for warning in document.problems.warnings()]
    warnings += _unknown_namespaces(collected)
    config = _config(documents, collected, bound, tuple(warnings))
    return replace(
        config,
        source=_source(documents),
        named_files=_named_in(documents),
        objects=tuple(params),
        object_kinds=kinds,
    )


def _objects(collected: _Collected, readable: Readable) -> list[dict[str, object]]:
    """Return the objects that policies read: parameters, and those of *readable* kinds."""
    found = collected.policies.take_params(_KINDS, readable)
    reads_namespaces = any((kind.api_version, kind.kind) == ("v1", "Namespace") for kind in readable.values())
    if reads_namespaces and collected.gateway.kubernetes is None:
        found += [orjson.loads(namespace.json) for namespace in collected.namespaces.values()]
    return found


def _check_cluster(collected: _Collected) -> None:
    """Report what needs a cluster without one, and warn of namespaces beside one."""
    if collected.gateway.kubernetes is None:
        for document, path, message in collected.need_cluster:
            document.problems.add_for_gateway(path, message)
        return
    for (kind, _), document in collected.first_of.items():
        if kind == "Namespace":
            document.problems.warn(
                document.path,
                "has no effect: GatewayConfiguration.kubernetes takes namespaces from the cluster",
            )


def _named_in(documents: Sequence[Document]) -> dict[str, str]:
    """Return the paths that *documents* name; of several texts for one the first in alphabetical order."""
    named = [item for document in documents for item in document.problems.named_files.items()]
    return dict(sorted(named, reverse=True))


def _source(documents: Sequence[Document]) -> bytes:
    """Return *documents* as JSON, for ``Config.source``; empty if they cannot be written."""
    kept = [{"file": str(one.file), "content": one.content} for one in documents if one.content is not None]
    try:
        return orjson.dumps(kept)
    except TypeError:
        return b""


def _problems_of_order(documents: Sequence[Document], collected: _Collected) -> list[Problem]:
    """Return the circles of ``after``."""
    places = [webhook for _, _, webhook in collected.afters]
    for circle in call_order.circles(places):
        document, path, _ = collected.afters[places.index(circle[0])]
        document.problems.add(path, f"found a circle, expected an order: {call_order.circle_text(circle)}")
    return _problems(documents)


def _problems_of_names(
    documents: Sequence[Document], collected: _Collected, bound: Sequence[Webhook]
) -> list[Problem]:
    """Return the problems of names of webhooks that do not exist, unless custom resources may have them.

    In an exception such a name has no effect, and is a warning. Without a webhook of imageReview, images that
    it denies could be allowed.
    """
    kubernetes = collected.gateway.kubernetes
    if kubernetes is not None and kubernetes.custom_resources:
        return []
    names = [(each.phase, hook.name) for each in collected.configurations for hook in each.webhooks]
    names += [(hook.phase, hook.name) for hook in bound]
    for _, kind, policy in collected.policies.policies:
        names.append(("validate" if kind == POLICY else "mutate", policy.name))
    known = frozenset(name for _, name in names)
    mutating = {
        hook.name for each in collected.configurations if each.phase == "mutate" for hook in each.webhooks
    }
    for document, path, webhook in collected.afters:
        for message in call_order.unknown_in_after(webhook, mutating):
            document.problems.warn(path, message)
    for document, exception in collected.exceptions:
        for message in unknown_webhooks(exception.webhooks, known):
            document.problems.warn(child(child(document.path, "spec"), "webhooks"), message)
    validating = frozenset(name for phase, name in names if phase == "validate")
    for index, name in enumerate(collected.gateway.image_review_webhooks):
        if name not in validating:
            document = collected.first_of["GatewayConfiguration", ""]
            place = f"{child(document.path, 'imageReview')}.webhooks[{index}]"
            hint = did_you_mean(name, validating)
            document.problems.add(place, f"there is no validating webhook {shown(name)}{hint}")
    return _problems(documents)


def _warn_if_all_are_left(collected: _Collected) -> None:
    """Warn if there are policies, all are left to the API server, and nothing else calls the gateway."""
    kubernetes, left = collected.gateway.kubernetes, collected.gateway.policies.left_to_api_server
    kinds = [kind for kind, _ in collected.first_of if kind in POLICY_KINDS]
    has_others = any(each.webhooks for each in collected.configurations) or not set(kinds) <= set(left)
    if kinds and not has_others and not (kubernetes is not None and kubernetes.custom_resources):
        document = collected.first_of["GatewayConfiguration", ""]
        document.problems.warn(
            child(child(document.path, "policies"), "leftToAPIServer"),
            f"all policies ({len(kinds)}) are left to the API server, and there are no webhooks: the gateway "
            "checks no request; apply the policies to the cluster, or nothing evaluates them",
        )


def _unknown_namespaces(collected: _Collected) -> Iterator[Problem]:
    """Yield a warning for each parametersFrom if no namespace is known."""
    if collected.gateway.kubernetes is not None or collected.namespaces:
        return
    for hook in chain.from_iterable(each.webhooks for each in collected.configurations):
        for client in hook.clients:
            if isinstance(client, WorkerRef) and client.parameters_annotation:
                message = (
                    "calls for requests in namespaces fail, because no namespace is known; expected "
                    "GatewayConfiguration.kubernetes, or Namespace documents"
                )
                document = collected.first_of[_KIND_OF[hook.phase], hook.configuration]
                path = client.place.rpartition(": ")[2]
                yield document.problems.problem(f"{path}.parametersFrom", message)


def _problems(documents: Sequence[Document]) -> list[Problem]:
    return [problem for document in documents for problem in document.problems.errors()]


def _too_many(documents: Sequence[Document]) -> ConfigError:
    """Return the error with the first problems of *documents*, and the place at which reading ended."""
    problems = _problems(documents)[:MAX_PROBLEMS]
    more = replace(problems[-1], field="", message=f"found {MAX_PROBLEMS} problems; the rest was not read")
    return ConfigError([*problems, more])


def _read(document: Document, collected: _Collected) -> None:
    fields = document.fields()
    kind = fields.required_string("kind")
    version = fields.required_string("apiVersion")
    if not kind or not version:
        return
    if collected.policies.take(document, fields, version, kind, _KINDS):
        return
    if version not in _KINDS[kind]:
        fields.problem("apiVersion", f"found {shown(version)}, expected {one_of(_KINDS[kind])} for a {kind}")
        return
    if kind == POLICY_TEST:
        return
    fields.problems.null_is_empty = version != GATEWAY_VERSION
    if version == GATEWAY_VERSION and kind in CUSTOM_KINDS:
        fields.accept("status")
    name = ""
    if kind in PHASES:
        configuration = read_webhook_configuration(fields, PHASES[kind], WEBHOOK_VERSIONS[version])
        name = configuration.name
        collected.configurations.append(configuration)
        collected.references.extend((document, path, pool) for path, pool in configuration.pools)
        collected.afters.extend((document, path, webhook) for path, webhook in configuration.afters)
        for paths, message in (
            (configuration.authorizers, NO_AUTHORIZER),
            (configuration.followed, NO_CLUSTER_TO_FOLLOW),
        ):
            collected.need_cluster.extend((document, path, message) for path in paths)
    elif kind == "WorkerPool":
        pool = read_worker_pool(fields)
        name = pool.name
        collected.pools.setdefault(name, pool)
    elif kind in (NAMESPACED, CLUSTER_WIDE):
        exception = read_policy_exception(fields, kind)
        # In files both kinds can cover the cluster, and share their names.
        kind, name = NAMESPACED, exception.id
        collected.exceptions.append((document, exception))
    elif kind == "Namespace":
        namespace = read_namespace(fields)
        name = namespace.name
        collected.namespaces.setdefault(name, namespace)
    elif kind in POLICY_KINDS or kind in POLICY_KINDS.values():
        name = collected.policies.read(document, fields, kind)
    else:
        collected.gateway = read_gateway_configuration(fields)
        collected.references += [(document, *each) for each in collected.gateway.policies.engines.pools]
    _check_first(document, collected, kind, name)


def _check_first(document: Document, collected: _Collected, kind: str, name: str) -> None:
    first = collected.first_of.setdefault((kind, name), document)
    if first is document:
        return
    if kind == "GatewayConfiguration":
        document.problems.add(
            document.path, f"found a second one, expected at most one; the first: {first.place}"
        )
    elif name:
        document.repeats(name, first)


def _config(
    read: Sequence[Document],
    collected: _Collected,
    bound: tuple[Webhook, ...],
    warnings: tuple[Problem, ...],
) -> Config:
    configurations = sorted(collected.configurations, key=lambda configuration: configuration.name.encode())

    def webhooks(phase: Phase) -> tuple[Webhook, ...]:
        return tuple(hook for each in configurations if each.phase == phase for hook in each.webhooks)

    policies = [key for key in collected.first_of if key[0] in (*POLICY_KINDS, *POLICY_KINDS.values())]
    settings = collected.gateway.policies
    left = settings.left_to_api_server
    bound = tuple(hook for hook in bound if getattr(hook.client, "kind", None) not in left)
    kubernetes = collected.gateway.kubernetes
    if (
        kubernetes is not None
        and kubernetes.custom_resources
        and (settings.param_kinds or settings.resources)
    ):
        authors = authors_policy(settings.param_kinds, settings.custom_resources_of)
        bound = tuple(sorted((*bound, authors), key=lambda hook: hook.order))
        policies += [(kind, AUTHORS) for pair in POLICY_KINDS.items() for kind in pair]

    def of_phase(phase: Phase) -> tuple[Webhook, ...]:
        return tuple(policy for policy in bound if policy.phase == phase)

    documents = {name: one for one in read for name in (one.problems.where, one.problems.label)}
    return Config(
        mutating=call_order.in_call_order((*of_phase("mutate"), *webhooks("mutate"))),
        validating=(*of_phase("validate"), *webhooks("validate")),
        pools=collected.pools,
        namespaces=collected.namespaces,
        gateway=collected.gateway,
        exceptions=tuple(sorted((one for _, one in collected.exceptions), key=lambda one: one.id)),
        configurations=frozenset((each.phase, each.name) for each in configurations),
        policies=frozenset(policies),
        loaded=frozenset(() if collected.policies.loaded is None else collected.policies.loaded.names),
        documents=documents,
        warnings=warnings,
    )
