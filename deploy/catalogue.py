"""Writes the catalogue of the ready-made policies into docs/catalogue/: ``make catalogue``.

    python -m deploy.catalogue

The definitions of the policies have the texts, and the newest report of ``loadtest.library`` the costs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies import definitions
from admission_gateway_worker.policies.definition import TOPICS
from admission_gateway_worker.policies.not_possible import NOT_POSSIBLE
from deploy.monitoring import ROOT, table, with_tables
from gateway.tools.cli.policies import configuration
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from admission_gateway_worker.policies.definition import Definition

PAGES: Final = ROOT / "docs" / "catalogue"
INDEX: Final = PAGES / "index.md"
REPORTS: Final = ROOT / "loadtest" / "results"
_GENITIVE: Final = {"Kubernetes": "Kubernetes'", "Kyverno": "Kyverno's", "Gatekeeper": "Gatekeeper's"}
_NO_PHRASE: Final = {
    "Kubernetes": "[those of all such policies](index.md#kubernetes-built-in-admission-controllers)",
    "Kyverno": "none known",
    "Gatekeeper": "none known",
}
_COST: Final = re.compile(r"^\| (\S*) +\| (\S+) +\| +(\d+) \|$", re.MULTILINE)


def outputs() -> dict[Path, str]:
    """Return the pages, each with its content."""
    costs = read_costs()
    found = definitions()
    tables = {"policies": _by_topic(found, costs), "not-possible": _not_possible_table()}
    pages = {PAGES / f"{each.name}.md": page(each, costs[each.name]) for each in found}
    return {INDEX: with_tables(INDEX.read_text(), tables, target="catalogue"), **pages}


def read_costs() -> dict[str, str]:
    """Return the microseconds of CPU of each policy, from the newest report."""
    reports = sorted(REPORTS.glob("*-policies.md"))
    return {name: cost for name, _, cost in _COST.findall(reports[-1].read_text())} if reports else {}


def _by_topic(found: tuple[Definition, ...], costs: Mapping[str, str]) -> str:
    topics = ((topic, [each for each in found if each.topic == topic]) for topic in TOPICS)
    return "\n".join(
        f"### {topic[0].upper()}{topic[1:]}\n\n{_policies_table(policies, costs)}"
        for topic, policies in topics
    )


def _policies_table(found: Iterable[Definition], costs: Mapping[str, str]) -> str:
    return table(
        ("policy", "kind", "effect", "stands for", "microseconds"),
        (
            (
                f"[`{each.name}`]({each.name}.md)",
                "mutating" if each.mutating else "validating",
                each.summary,
                _stands_for(each),
                costs[each.name],
            )
            for each in found
        ),
    )


def _stands_for(definition: Definition) -> str:
    names: dict[str, list[str]] = {}
    for each in definition.replaces:
        names.setdefault(each.engine, []).append(f"`{each.name}`")
    return "; ".join(f"{_GENITIVE[engine]} {', '.join(ours)}" for engine, ours in names.items())


def _not_possible_table() -> str:
    return table(("controller", "why it is not a policy", "instead"), NOT_POSSIBLE)


def page(definition: Definition, cost: str) -> str:
    """Return the page of a policy."""
    documents = "---\n".join(to_yaml(each, is_compact=True) for each in configuration([definition])[1:])
    parts = [
        f"# {definition.name}\n\n{definition.summary}\n",
        f"## Example\n\n```yaml\n{documents}```\n\nUsers see:\n\n```text\n{definition.users_see}\n```\n",
        f"## Parameters\n\n{_parameters(definition.parameters)}",
        f"## Properties\n\n{_properties(definition, cost)}",
    ]
    parts.append(f"## Instead of\n\n{_replaced(definition)}")
    if definition.notes:
        parts.append(f"## Notes\n\n{definition.notes}")
    return "\n".join(parts)


def _parameters(schema: Mapping[str, Any]) -> str:
    rows = list(_rows(schema, ""))
    return table(("field", "type", "default", "meaning"), rows) if rows else "The policy has no parameters.\n"


def _rows(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required") or ()
    for name, each in (schema.get("properties") or {}).items():
        default = "required" if name in required else ""
        if "default" in each:
            default = f"`{_written(each['default'])}`"
        yield f"`{prefix}{name}`", _type(each), default, each.get("description", "")
        if each.get("type") == "object":
            yield from _rows(each, f"{prefix}{name}.")
        elif isinstance(items := each.get("items"), dict):
            yield from _rows(items, f"{prefix}{name}[].")
    if "description" in (other := schema.get("additionalProperties") or {}):
        yield f"`{prefix}*`", _type(other), "", other["description"]


def _written(value: object) -> str:
    return to_yaml({"": value}).partition(":")[2].strip() if isinstance(value, str) else str(value).lower()


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "map"
    return str(schema.get("type", "any"))


def _properties(definition: Definition, cost: str) -> str:
    optional = "" if definition.needs_cluster else ", if the worker has access"
    link = "[access to the API server](index.md#access-to-the-api-server)"
    cluster = f"{definition.rights}{optional}: see {link}"
    rows = [
        ("topic", definition.topic),
        ("kind", "mutating" if definition.mutating else "validating"),
        ("reads the Namespace of the request", "yes" if definition.needs_namespace else "no"),
        ("reads from the API server", cluster if definition.rights else "no"),
        ("CPU of a review", f"{cost} microseconds, with the parse of the request"),
    ]
    return table(("property", "value"), rows)


def _replaced(definition: Definition) -> str:
    return table(
        ("what the policy stands for", "difference"),
        (
            (f"{_GENITIVE[each.engine]} `{each.name}`", each.difference or _NO_PHRASE[each.engine])
            for each in definition.replaces
        ),
    )


if __name__ == "__main__":
    for file, content in outputs().items():
        file.write_text(content)
