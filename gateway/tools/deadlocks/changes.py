"""The smallest change of a registration after which a refused request is no longer sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.config.kinds.namespace import KUBE_SYSTEM
from gateway.tools.deadlocks.requests import API_SERVER

if TYPE_CHECKING:
    from gateway.tools.deadlocks.model import FailEntry, Request

_BUILT_IN: Final = frozenset({"default"})
"""Namespaces of people's own objects, which should not be left out as a whole."""


def change_for(entry: FailEntry, request: Request) -> str:
    """Return the change of *entry* for *request*, which it matches.

    A namespace is left out if the request has one. Requests without a namespace are not left out by any
    namespaceSelector: they need the scope ``Namespaced``, or a matchCondition on groups, users or the kind.
    """
    if not entry.is_gateway:
        return _condition(request)
    is_namespace = (request.group, request.resource) == ("", "namespaces")
    if request.namespace == KUBE_SYSTEM:
        return "register without --include kube-system"
    if request.namespace and not is_namespace and request.namespace not in _BUILT_IN:
        return f"exclude the namespace {request.namespace}"
    rules = [rule for rule in entry.hook.rules if "*" in "".join(rule.resources) and rule.scope == "*"]
    if not request.namespace and rules and len(rules) == len(entry.hook.rules):
        return "register its rules with scope: Namespaced"
    return _condition(request)


def _condition(request: Request) -> str:
    group, resource = request.group, request.resource.partition("/")[0]
    if request.user == API_SERVER[0]:
        test = f'request.userInfo.username != "{request.user}"'
    elif "system:nodes" in request.groups:
        test = '!("system:nodes" in request.userInfo.groups)'
    elif request.namespace:
        test = f'request.namespace != "{request.namespace}"'
    else:
        test = f'!(request.resource.group == "{group}" && request.resource.resource == "{resource}")'
    return f"add the matchCondition {test}"
