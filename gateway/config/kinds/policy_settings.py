"""``GatewayConfiguration.policies``: who evaluates policies, and the parameters of those in custom resources.

The author of a policy sees its parameters: an expression can put them into a message. So a kind has to be
listed before a custom resource can name it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import (
    Choice,
    Declared,
    Group,
    Groups,
    Integer,
    Read,
    Text,
    Texts,
    declare,
    optional,
    required,
)
from gateway.config.kinds.engine_settings import NO_ENGINES, EnginesEntry
from gateway.config.kinds.names import dns_1035_label, dns_1123_label, group_version
from gateway.config.kinds.policy_backend import PolicyBackend
from gateway.config.yaml.documents import ENGINES, POLICY_KINDS, Engine, followed_kinds, plural_of
from gateway.config.yaml.fields import GATEWAY_CONFIGURATION, child
from gateway.pure.admission_policies.model import PlacementChoice, TemplateMode
from gateway.pure.core.policy import ParamKind
from gateway.pure.core.webhook import PolicyRef
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.yaml.documents import Document, FollowedKinds
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import HttpsClient, Webhook

PLACEMENT: Final = "admission-gateway.io/placement"
"""The annotation of a policy that overrides ``GatewayConfiguration.policies.placement``."""
PLACEMENTS: tuple[PlacementChoice, ...] = get_args(PlacementChoice)
TEMPLATES: Final = "admission-gateway.io/applies-to-templates"
"""The annotation of a policy that is evaluated also on the Pods of workloads."""
TEMPLATE_MODES: tuple[TemplateMode, ...] = get_args(TemplateMode)
MAX_BACKENDS: Final = 32
MAX_LISTED_KINDS: Final = 32
EVERY_NAMESPACE: Final = "*"
NO_OWNER: Final = (
    "policies.installation of the GatewayConfiguration is absent; set it to NAMESPACE/NAME, the owner of the "
    "objects"
)
"""Why policies stay in the gateway, or cannot return to it."""
_STAYS: Final = "the owner of policies in the API server; without it policies stay in the gateway"
_RESOURCE: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def check_plural(text: str) -> str | None:
    """Return why *text* is not the plural name of a kind, or None."""
    if _RESOURCE.fullmatch(text):
        return None
    return f"found {shown(text)}, expected the plural name of the kind, in small letters"


def _check_kind(text: str) -> str | None:
    return dns_1035_label(text.lower())


def check_installation(text: str) -> str | None:
    """Return why *text* does not name an installation of the gateway, or None."""
    namespace, slash, name = text.partition("/")
    if slash and dns_1123_label(namespace) is None and dns_1123_label(name) is None:
        return None
    return f"found {shown(text)}, expected NAMESPACE/NAME"


def _read_left(source: Fields, name: str) -> tuple[str, ...]:
    def check(text: str) -> str | None:
        return None if text in POLICY_KINDS else f"found {shown(text)}, expected {one_of(POLICY_KINDS)}"

    return tuple(dict.fromkeys(source.strings(name, check)))


def _read_engines(source: Fields, name: str) -> tuple[Engine, ...]:
    def check(text: str) -> str | None:
        return None if text in ENGINES else f"found {shown(text)}, expected {one_of(ENGINES)}"

    named = source.strings(name, check)
    return tuple(engine for engine in ENGINES if engine in named)


def _check_exception_namespace(text: str) -> str | None:
    return None if text == EVERY_NAMESPACE else dns_1123_label(text)


@dataclass(frozen=True, slots=True)
class ListedKind(Declared):
    """A kind of objects that policies may read."""

    api_version: str = required(Text(check=group_version), "Such as `v1` or `example.com/v1`")
    kind: str = required(Text(check=_check_kind), "Such as `ConfigMap`")
    resource: str = required(
        Text(check=check_plural),
        "The plural name of the kind, such as `configmaps`. Not `secrets` of the core group",
    )

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def check(self, source: Fields) -> None:
        """Report a resource that is not that of the kind."""
        if _RESOURCE.fullmatch(self.resource):
            _check_resource(source, self)


@dataclass(frozen=True, slots=True)
class PolicySettings(Declared):
    """The settings of policies."""

    param_kinds: tuple[ListedKind, ...] = declare(
        Groups(ListedKind, MAX_LISTED_KINDS),
        "Kinds from which policies in custom resources may take "
        "[parameters](policies.md#parameters-of-custom-resources). Not Secret. Needs "
        "`kubernetes.customResources`",
        default=(),
    )
    resources: tuple[ListedKind, ...] = declare(
        Groups(ListedKind, MAX_LISTED_KINDS),
        "Kinds whose objects the expressions of policies may [read](policies.md#reading-other-objects), with "
        "`resource.get` and `resource.list`. Not Secret",
        default=(),
    )
    backends: tuple[PolicyBackend, ...] = declare(
        Groups(PolicyBackend, MAX_BACKENDS, key="name"),
        "Servers from which the expressions of Kyverno's policies in files get data, with "
        "[`http.get`](kyverno.md#data-from-other-servers). They get no credentials of the gateway",
        default=(),
    )
    left_to_api_server: tuple[str, ...] = declare(
        Read("list of strings", _read_left, "array"),
        "Kinds of policies, such as `ValidatingAdmissionPolicy`, that the gateway [leaves to the API "
        "server](policies.md#policies-that-the-api-server-evaluates): neither evaluated nor registered",
        default=(),
        name="leftToAPIServer",
    )
    placement: PlacementChoice = declare(
        Choice(PLACEMENTS),
        "Where policies are [evaluated](policies.md#policies-that-the-gateway-puts-into-the-api-server): by "
        "the gateway, or by the API server if that has the same outcome. With `Auto` a policy that cannot "
        "move stays in the gateway, with `APIServer` there is also a warning. The annotation "
        "`admission-gateway.io/placement` of a policy overrides it",
        default="Gateway",
    )

    installation: str | None = optional(
        Text("NAMESPACE/NAME", check=check_installation),
        "Namespace of the gateway, and a name: the owner of [policies in the API "
        "server](policies.md#how-a-policy-moves). Needed for `placement`, and until all policies are back in "
        "the gateway",
    )
    settle_seconds: int = declare(
        Integer(1, 600),
        "How long [both evaluate a policy](policies.md#how-a-policy-moves) after the proof that the API "
        "server has it, and before it is deleted there",
        default=60,
    )

    custom_resources_of: tuple[Engine, ...] = declare(
        Read("list of `Kyverno`, `Gatekeeper`, `Kubewarden`", _read_engines, "array"),
        "Other engines whose policies in the cluster are [part of the configuration]"
        "(#custom-resources-of-other-engines). Needs `kubernetes.customResources`. The "
        "engine itself, where it runs, enforces the same once more",
        default=(),
    )
    exception_namespaces: tuple[str, ...] = declare(
        Texts("list of namespaces, or `*` for all", _check_exception_namespace),
        "Where PolicyExceptions of Kyverno in the cluster have to be to [apply]"
        "(kyverno.md#policies-in-the-cluster). Those in files apply always",
        default=(),
    )

    engines: EnginesEntry = declare(
        Group(EnginesEntry),
        "The workers that evaluate [policies of other engines](#policies-that-workers-evaluate)",
        default=NO_ENGINES,
    )

    @property
    def followed_kinds(self) -> FollowedKinds:
        """The kinds of ``custom_resources_of``, with those that only a worker evaluates if there is one."""
        has_worker = self.engines.gatekeeper is not None
        return followed_kinds(self.custom_resources_of, ("Gatekeeper",) if has_worker else ())

    @property
    def plural_names(self) -> dict[tuple[str, str], str]:
        """The plural names of ``param_kinds`` and ``resources``, by apiVersion and kind."""
        return {(one.api_version, one.kind): one.resource for one in self.read_kinds}

    @property
    def read_kinds(self) -> tuple[ListedKind, ...]:
        """All kinds that policies may read."""
        return tuple(dict.fromkeys((*self.param_kinds, *self.resources)))

    @property
    def readable(self) -> dict[tuple[str, str], ParamKind]:
        """The kinds of ``resources``, by apiVersion and plural name."""
        return {
            (one.api_version, one.resource): ParamKind(one.api_version, one.kind) for one in self.resources
        }

    def applies_exceptions_of(self, namespace: str) -> bool:
        """Whether exceptions of Kyverno in *namespace* of the cluster apply."""
        return not {namespace, EVERY_NAMESPACE}.isdisjoint(self.exception_namespaces)

    @property
    def backend_clients(self) -> tuple[HttpsClient, ...]:
        """The servers of ``backends``."""
        return tuple(one.client for one in self.backends)

    def owner_problem(self, annotation: PlacementChoice | None) -> str:
        """Return what keeps a policy whose *annotation* alone asks to move it; empty if nothing does."""
        if annotation in (None, "Gateway") or self.placement != "Gateway" or self.installation is not None:
            return ""
        return (
            f"found {annotation}, without policies.installation in the GatewayConfiguration, expected "
            f"NAMESPACE/NAME there: {_STAYS}"
        )

    def check(self, source: Fields) -> None:
        """Report kinds that are listed twice, and policies that are to move without an owner."""
        if self.placement != "Gateway" and not source.content.get("installation"):
            message = f"found none, expected NAMESPACE/NAME, because placement is {self.placement}: {_STAYS}"
            source.problems.warn(source.at("installation"), message)
        plurals: dict[tuple[str, str], str] = {}
        for name, listed in (("paramKinds", self.param_kinds), ("resources", self.resources)):
            seen = set[tuple[str, str]]()
            for index, one in enumerate(listed):
                key, place = (one.api_version, one.kind), f"{source.at(name)}[{index}]"
                if key in seen:
                    message = f"found {shown(one.kind)} of {shown(one.api_version)} twice"
                    source.problems.add(f"{place}.kind", message)
                elif plurals.setdefault(key, one.resource) != one.resource:
                    message = f"found {shown(one.resource)}, and paramKinds has {shown(plurals[key])}"
                    source.problems.add(f"{place}.resource", message)
                seen.add(key)


def listing_of(version: str, plural: str, kind: str = "KIND") -> str:
    """Return what has to be written so that expressions may read *plural* of *version*.

    *kind* is that of custom resources.
    """
    of_resource = RESOURCES.get(version.rpartition("/")[0], {}).get(plural)
    if (version, plural) == ("v1", "secrets"):
        return "no policy may read Secrets"
    kind = kind if of_resource is None else of_resource.kind
    entry = f"{{apiVersion: {version}, kind: {kind}, resource: {plural}}}"
    return f"to read it, add {entry} to policies.resources of the GatewayConfiguration"


def listing_of_kind(version: str, kind: str) -> str:
    """Return what has to be written so that expressions may read objects of *kind*."""
    if group_version(version) or _check_kind(kind):
        return "to read it, add its kind to policies.resources of the GatewayConfiguration"
    known = RESOURCES.get(version.rpartition("/")[0], {}).values()
    plural = next((one.name for one in known if one.kind == kind), plural_of(kind))
    return listing_of(version, plural, kind)


def check_reads(document: Document, policy: Webhook) -> None:
    """Report what the *policy* of *document* must not use, and warn of objects that nothing has."""
    from gateway.pure.admission_policies.in_force import PolicyInForce

    place = child(document.path, "spec")
    for problem in _problems_of_reads(policy):
        if GATEWAY_CONFIGURATION in problem:
            document.problems.add_for_gateway(place, problem)
        else:
            document.problems.add(place, problem)
    assert isinstance(policy.policy, PolicyInForce)
    for version, plural, kind in policy.policy.objects.absent:
        found = f"reads {plural} of {version}, but no file has a {kind}, and no cluster is configured"
        document.problems.warn(place, f"{found}: it finds none")


def _problems_of_reads(policy: Webhook) -> Iterator[str]:
    """Yield what a *policy* uses and must not, each as a sentence about it.

    It reads what ``resources`` does not list, or calls what cannot succeed.
    """
    assert isinstance(policy.client, PolicyRef)
    for version, name in policy.client.unlisted_reads:
        # Kinds whose plural names are not known begin with a capital letter.
        listing = listing_of_kind if name[:1].isupper() else listing_of
        yield f"reads {name} of {version}: {listing(version, name)}"
    yield from policy.client.wrong_calls


def _check_resource(fields: Fields, kind: ListedKind) -> None:
    """Report a built-in *kind* with the plural name of another one, and Secret by either name.

    The gateway gets the right to read the resource, and the rights of authors are checked for it. A kind that
    is not built in is compared with the API server's discovery while the gateway runs.
    """
    known = RESOURCES.get(kind.group, {})
    of_resource = known.get(kind.resource)
    if not kind.group and (kind.kind.lower() == "secret" or kind.resource == "secrets"):
        name, found = ("kind", kind.kind) if kind.kind.lower() == "secret" else ("resource", kind.resource)
        fields.problem(name, f"found {found}, which is not allowed: messages of policies can contain it")
    elif of_resource is not None and of_resource.kind != kind.kind:
        fields.problem(
            "kind", f"found {shown(kind.kind)}, expected {of_resource.kind}, the kind of {kind.resource}"
        )
    elif of_resource is None:
        for one in known.values():
            if one.kind.lower() == kind.kind.lower():
                reason = f"expected {one.name}, the plural name of {one.kind}"
                fields.problem("resource", f"found {shown(kind.resource)}, {reason}")
