"""Warnings about rules that match no request of any known resource, with the name that was probably meant.

kube-apiserver accepts such rules, and so does the gateway. The webhook is then never called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base.text import did_you_mean, shown
from gateway.pure.core.rules import NEVER_SENT_KINDS, NEVER_SENT_RESOURCES
from gateway.pure.openapi.built_in_resources import CONNECTED, RESOURCES, BuiltInResource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.pure.core.webhook import Rule

_EVERY = tuple(one for group in RESOURCES.values() for one in group.values())
_LEGACY_GROUPS = ("extensions",)


def rule_warnings(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the path inside *rule* and the message for each value that matches nothing known."""
    for index, group in enumerate(rule.api_groups):
        if message := _group_warning(group):
            yield f"apiGroups[{index}]", message
    for index, version in enumerate(rule.api_versions):
        if "/" in version:
            short = shown(version.rpartition("/")[2])
            yield (
                f"apiVersions[{index}]",
                f"{shown(version)} matches nothing; a version has no group: {short}",
            )
    for index, entry in enumerate(rule.resources):
        if message := _resource_warning(rule, entry):
            yield f"resources[{index}]", message


def _group_warning(group: str) -> str | None:
    if group in RESOURCES or group in ("*", *_LEGACY_GROUPS):
        return None
    if group in ("core", "v1"):
        return f'{shown(group)} matches nothing; the core group is ""'
    if "/" in group:
        return f"{shown(group)} matches nothing; a group has no version: {shown(group.partition('/')[0])}"
    if "." in group:
        return None  # of custom resources, or of an aggregated API server
    meant = [known for known in RESOURCES if known.startswith(f"{group}.")]
    hint = f'; did you mean "{meant[0]}"?' if meant else did_you_mean(group, filter(None, RESOURCES))
    return f"{shown(group)} matches nothing known: groups of custom resources contain a dot{hint}"


def _resource_warning(rule: Rule, entry: str) -> str | None:
    name, _, sub_resource = entry.partition("/")
    if name == "*":
        return None
    groups = RESOURCES if "*" in rule.api_groups else rule.api_groups
    known = [one for group in groups if (one := RESOURCES.get(group, {}).get(name)) is not None]
    if known:
        return _known_resource_warning(rule, entry, known, sub_resource)
    may_be_custom = any(group not in RESOURCES for group in rule.api_groups)
    meant = _meant(name, groups)
    if name != name.lower():
        return f"{shown(entry)} matches nothing: names of resources are plural and in lower case{meant}"
    if may_be_custom and "*" not in rule.api_groups:
        return None
    if not may_be_custom or meant:
        return f"{shown(entry)} matches no known resource of {_shown_groups(rule)}{meant}"
    return None


def _meant(name: str, groups: Iterable[str]) -> str:
    """Return the end of a message with the resource that *name* probably stands for, if there is one."""
    lower = name.lower()
    places = [one for group in groups for one in RESOURCES.get(group, {}).values()]
    for one in (*places, *_EVERY):
        if name == one.name:
            return f"; it is in the group {shown(one.group)}"
        if lower == one.name or lower in one.other_names:
            where = "" if one in places else f" of the group {shown(one.group)}"
            return f"; did you mean {shown(one.name)}{where}?"
    return "" if len(places) == len(_EVERY) else did_you_mean(name, (one.name for one in places))


def _known_resource_warning(
    rule: Rule, entry: str, known: list[BuiltInResource], sub_resource: str
) -> str | None:
    if all(map(_is_never_sent, known)):
        return f"{shown(entry)} matches nothing: the gateway calls no webhook and no policy for this resource"
    subs = {sub for one in known for sub in one.sub_resources}
    if sub_resource not in ("", "*", *subs):
        hint = did_you_mean(sub_resource, subs)
        return f"{shown(entry)} matches nothing: no such subresource is known that admission is for{hint}"
    if rule.scope != "*" and all(one.is_namespaced != (rule.scope == "Namespaced") for one in known):
        other = "Cluster" if rule.scope == "Namespaced" else "Namespaced"
        return f"{shown(entry)} matches nothing with scope {rule.scope}; its scope is {other}"
    is_connected = (known[0].name, sub_resource) in CONNECTED and known[0].group == ""
    if is_connected and not {"*", "CONNECT"} & {*rule.operations}:
        return f"{shown(entry)} matches nothing with these operations; its only operation is CONNECT"
    if sub_resource == "" and rule.operations == ("CONNECT",):
        return f"{shown(entry)} matches nothing with CONNECT, which is an operation of some subresources"
    return None


def _is_never_sent(resource: BuiltInResource) -> bool:
    is_of_kind = any(
        group == resource.group and kind.lower() in resource.other_names for group, kind in NEVER_SENT_KINDS
    )
    return is_of_kind or (resource.group, resource.name) in NEVER_SENT_RESOURCES


def _shown_groups(rule: Rule) -> str:
    if "*" in rule.api_groups:
        return "any group"
    return f"the group {', '.join(map(shown, rule.api_groups))}"
