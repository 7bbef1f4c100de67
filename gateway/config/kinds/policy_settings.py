"""``GatewayConfiguration.policies``: the parameters that policies in custom resources may read.

The author of a policy sees its parameters: an expression can put them into a message. So a kind has to be
listed before a custom resource can name it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of, shown
from gateway.config.kinds.names import dns_1035_label, group_version
from gateway.config.yaml.documents import POLICY_KINDS
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields

MAX_PARAM_KINDS: Final = 32
_RESOURCE: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ListedParamKind:
    """A kind of parameters that policies in custom resources may use."""

    api_version: str
    kind: str
    resource: str
    """The plural name of the kind in the API."""

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The settings of policies."""

    param_kinds: tuple[ListedParamKind, ...] = ()
    left_to_api_server: tuple[str, ...] = ()
    """Kinds of policies that the API server evaluates itself."""

    @property
    def plural_names(self) -> dict[tuple[str, str], str]:
        """The plural names of ``param_kinds``, by apiVersion and kind."""
        return {(one.api_version, one.kind): one.resource for one in self.param_kinds}


def read_policy_settings(fields: Fields) -> PolicySettings:
    """Return the ``policies`` group in *fields*."""
    found = fields.mappings("paramKinds")
    if len(found) > MAX_PARAM_KINDS:
        fields.problem("paramKinds", f"found {len(found)}, expected at most {MAX_PARAM_KINDS}")
    kinds: dict[tuple[str, str], ListedParamKind] = {}
    for one in found:
        kind = ListedParamKind(
            one.required_string("apiVersion", group_version),
            one.required_string("kind", lambda text: dns_1035_label(text.lower())),
            one.required_string("resource", _resource),
        )
        one.finish()
        key = kind.api_version, kind.kind
        if key in kinds:
            one.problem("kind", f"found {shown(kind.kind)} of {shown(kind.api_version)} twice")
        elif _RESOURCE.fullmatch(kind.resource):
            _check_resource(one, kind)
        kinds.setdefault(key, kind)
    left = [_left(fields, path, text) for path, text in fields.indexed_strings("leftToAPIServer")]
    fields.finish()
    return PolicySettings(tuple(kinds.values()), tuple(dict.fromkeys(left)))


def _check_resource(fields: Fields, kind: ListedParamKind) -> None:
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


def _resource(text: str) -> str | None:
    if _RESOURCE.fullmatch(text):
        return None
    return f"found {shown(text)}, expected the plural name of the kind, in small letters"


def _left(fields: Fields, path: str, text: str) -> str:
    if text not in POLICY_KINDS:
        fields.problems.add(path, f"found {shown(text)}, expected {one_of(POLICY_KINDS)}")
    return text
