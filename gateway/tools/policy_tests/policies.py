"""Policies of other engines for their tests, each loaded if the gateway supports it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import ConfigError
from gateway.config.loaders.cluster_worker_rule import is_for_worker
from gateway.config.merge.read import read
from gateway.config.yaml.documents import ADMISSION_GROUP, POLICY_KINDS, Document
from gateway.config.yaml.fields import Problems
from gateway.pure.core.role_bindings import VERSION
from gateway.pure.core.webhook import PolicyRef, Webhook, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gateway.base.errors import Problem
    from gateway.config.merge.model import Config
    from gateway.config.merge.policy_documents import Readable
    from gateway.tools.policy_tests.kyverno_test import TestUser

    Json = dict[str, Any]

_GROUPS: Final = ("policies.kyverno.io", "kyverno.io", ADMISSION_GROUP)
_MAX_REASONS: Final = 3
_SCORED: Final = "policies.kyverno.io/scored"
_ACTIONS: Final[Mapping[str, Json]] = {
    "policies.kyverno.io": {"validationActions": ["Deny"]},
    ADMISSION_GROUP: {"validationActions": ["Deny"]},
    "kyverno.io": {"validationFailureAction": "Enforce"},
}


@dataclass(frozen=True, slots=True)
class LoadedPolicies:
    """The policies of a test, all in the mode Enforce: what they are set to do must not hide a failure."""

    config: Config
    refused: Mapping[str, str]
    """Why the gateway cannot run a policy, by its name, or ``NAMESPACE/NAME``."""
    names: frozenset[str]
    """The names of all policies."""
    with_rules: frozenset[str]
    """The names of those that have rules: ClusterPolicies and Policies."""
    unscored: frozenset[str]
    """The names of those whose failures Kyverno reports as warnings."""
    passing: frozenset[str]
    """The names of exceptions after which Kyverno reports that the policy passes."""
    unloaded: str
    """Why a document that is no policy, such as an exception, is not loaded. Empty if all are."""


def load_policies(
    documents: Iterable[Document],
    params: Iterable[Document],
    role_bindings: Iterable[Document],
    readable: Readable,
    servers: Iterable[str] = (),
    worker: Sequence[Document] = (),
) -> LoadedPolicies:
    """Load the *documents* of policies, bindings and exceptions, and their parameters among *params*.

    Documents of other kinds are left out. *role_bindings* give the user of the test its roles. Expressions
    may read objects of the kinds in *readable*, and get data from *servers*. *worker* are the settings of the
    worker that evaluates what the gateway does not.
    """
    policies = policies_in(documents)
    kinds = [_kind(kind) for one in policies for kind in _param_kinds(one)]
    used = [one for one in params if one.content is not None and _kind(one.content) in kinds]
    if any(map(_names_roles, policies)):
        used += role_bindings
    found = [*worker, *policies, *_missing_bindings(policies), *used]
    config, refused = load_supported(found, readable, servers)
    hooks = {name for hook in config.webhooks for name in (hook.name, hook.configuration)}
    silent = [one for one in policies if _is_policy(one) and id_of(one) not in hooks]
    reasons, unloaded = {id_of(one): _why_silent(one, config.warnings) for one in silent}, ""
    for document, reason in refused:
        if _is_policy(document):
            reasons[id_of(document)] = reason
        else:
            unloaded = unloaded or f"{document.place}: {reason}"
    named = [one for one in policies if _is_policy(one)]
    return LoadedPolicies(
        config,
        reasons,
        frozenset(map(id_of, named)),
        frozenset(id_of(one) for one in named if _group(one) == "kyverno.io"),
        frozenset(id_of(one) for one in named if _annotations(one).get(_SCORED) == "false"),
        frozenset(id_of(one) for one in policies if _spec(one).get("reportResult") == "pass"),
        unloaded,
    )


def policies_in(documents: Iterable[Document]) -> list[Document]:
    """Return those of *documents* that are policies, bindings or exceptions, in the mode Enforce."""
    return [_enforcing(one) for one in documents if _group(one) in _GROUPS or one.content is None]


def load_supported(
    documents: Sequence[Document], readable: Readable | None = None, servers: Iterable[str] = ()
) -> tuple[Config, list[tuple[Document, str]]]:
    """Return the configuration of the *documents* without problems, and the others with their first ones."""
    refused: list[tuple[Document, str]] = []
    while True:
        try:
            return _enforced(read(documents, readable, servers)), refused
        except ConfigError:
            wrong = [(one, one.problems.found[:_MAX_REASONS]) for one in documents if one.problems.found]
            refused += [
                (one, "; ".join(f"{path}: {message}" if path else message for path, message in found))
                for one, found in wrong
            ]
            documents = [_unread(one) for one in documents if not one.problems.found]


def _why_silent(policy: Document, warnings: Iterable[Problem]) -> str:
    """Return why the document *policy* reviews no requests."""
    of_policy = (one for one in warnings if one.where == policy.problems.where)
    found = (f"{one.field}: {one.message}" for one in of_policy if "no effect" in one.message)
    return next(found, "the policy reviews no requests")


def id_of(document: Document) -> str:
    """Return the name in the metadata of *document*, behind its namespace and a slash if its kind has one."""
    content = document.content or {}
    metadata = content.get("metadata")
    named: Json = metadata if isinstance(metadata, dict) else {}
    namespace, name = named.get("namespace"), named.get("name")
    kind = str(content.get("kind"))
    is_namespaced = kind in ("Policy", "PolicyException") or kind.startswith("Namespaced")
    return f"{namespace}/{name}" if namespace and is_namespaced else str(name)


def _unread(document: Document) -> Document:
    """Return *document* as before it was read."""
    problems = Problems(document.problems.where, folder=document.problems.folder)
    return Document(document.file, problems, document.content, document.path)


def _enforced(config: Config) -> Config:
    def of(hooks: Iterable[Webhook]) -> tuple[Webhook, ...]:
        # Reinvoked, a rule would have another result of the object as the rules after it leave it.
        return tuple(
            replace(one, rollout=None, reinvocation_policy="Never")
            if isinstance(one.client, WorkerRef)
            else replace(one, rollout=None)
            for one in hooks
            if isinstance(one.client, PolicyRef | WorkerRef)
        )

    return replace(config, mutating=of(config.mutating), validating=of(config.validating))


def _kind(found: Mapping[str, object]) -> tuple[object, object]:
    return found.get("apiVersion"), found.get("kind")


def _group(document: Document) -> str:
    return str((document.content or {}).get("apiVersion")).rpartition("/")[0]


def _is_policy(document: Document) -> bool:
    return str((document.content or {}).get("kind")).endswith("Policy")


def _annotations(document: Document) -> Json:
    metadata = (document.content or {}).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _spec(document: Document) -> Json:
    spec = (document.content or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _rules(spec: Json) -> Iterator[Json]:
    rules = spec.get("rules")
    return (one for one in rules if isinstance(one, dict)) if isinstance(rules, list) else iter(())


def _enforcing(document: Document) -> Document:
    """Return *document* with actions that deny a request. Exceptions have no end, as for ``kyverno test``."""
    kind, spec, group = str((document.content or {}).get("kind")), _spec(document), _group(document)
    if kind == "PolicyException" and "expiresAt" in spec:
        lasting = {name: value for name, value in spec.items() if name != "expiresAt"}
        document.content = {**(document.content or {}), "spec": lasting}
        return document
    if not spec or kind.removeprefix("Namespaced") not in (
        *("ValidatingPolicy", "ClusterPolicy", "Policy", "ValidatingAdmissionPolicyBinding"),
    ):
        return document
    changed = {**spec, **_ACTIONS[group]}
    if group == "kyverno.io":
        changed.pop("validationFailureActionOverrides", None)
        if isinstance(spec.get("rules"), list):
            changed["rules"] = [_enforcing_rule(one) for one in spec["rules"]]
    document.content = {**(document.content or {}), "spec": changed}
    return document


def _enforcing_rule(rule: object) -> object:
    if not isinstance(rule, dict) or not isinstance(rule.get("validate"), dict):
        return rule
    actions = ("failureAction", "failureActionOverrides")
    return {**rule, "validate": {key: each for key, each in rule["validate"].items() if key not in actions}}


def _param_kinds(document: Document) -> Iterator[Json]:
    """Yield the kinds of the parameters of a policy."""
    spec = _spec(document)
    found = [spec.get("paramKind")]
    for rule in _rules(spec):
        validate = rule.get("validate")
        cel = validate.get("cel") if isinstance(validate, dict) else None
        found.append(cel.get("paramKind") if isinstance(cel, dict) else None)
    return (one for one in found if isinstance(one, dict))


def _names_roles(document: Document) -> bool:
    """Whether the roles of users count for the policy or exception *document*."""
    spec = _spec(document)
    matches = [spec.get("match")]
    for rule in _rules(spec):
        # A worker reads the user of the test itself.
        if not is_for_worker(rule):
            matches += [rule.get("match"), rule.get("exclude")]
    found = [one for one in matches if isinstance(one, dict)]
    listed = [one for match in found for one in (match.get("any"), match.get("all"))]
    blocks = [*found, *(block for one in listed if isinstance(one, list) for block in one)]
    return any(isinstance(one, dict) and ("roles" in one or "clusterRoles" in one) for one in blocks)


def bindings_of(user: TestUser, file: Path) -> list[Document]:
    """Return bindings, as documents of *file*, that give *user* its roles, or nobody any role."""
    subjects = [{"kind": "User", "name": user.info.get("username", "")}]
    given = [("RoleBinding", "Role", *one.split(":", 1)) for one in user.roles]
    given += [("ClusterRoleBinding", "ClusterRole", "", one) for one in user.cluster_roles]
    if not given:
        given, subjects = [("ClusterRoleBinding", "ClusterRole", "", "none")], []
    documents = []
    for number, (kind, of_role, namespace, name) in enumerate(given):
        metadata = {"name": f"told-{number}", **({"namespace": namespace} if namespace else {})}
        content: dict[str, object] = {
            "apiVersion": VERSION,
            "kind": kind,
            "metadata": metadata,
            "roleRef": {"kind": of_role, "name": name},
            "subjects": subjects,
        }
        documents.append(Document(file, Problems(f"{file}: userinfo"), content))
    return documents


def _missing_bindings(documents: Sequence[Document]) -> Iterator[Document]:
    """Yield bindings for policies of the API server without one, to which Kyverno applies them too."""
    bound = {_spec(one).get("policyName") for one in documents}
    for one in documents:
        content = one.content or {}
        kind = str(content.get("kind"))
        if kind not in POLICY_KINDS or id_of(one) in bound:
            continue
        spec: Json = {"policyName": id_of(one)}
        if kind == "ValidatingAdmissionPolicy":
            spec["validationActions"] = ["Deny"]
        binding: Json = {
            "apiVersion": content.get("apiVersion"),
            "kind": POLICY_KINDS[kind],
            "metadata": {"name": id_of(one)},
            "spec": spec,
        }
        yield Document(one.file, Problems(one.problems.where, folder=one.problems.folder), binding)
