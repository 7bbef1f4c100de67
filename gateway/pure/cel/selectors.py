"""Field and label selectors as text → the requirements of a SubjectAccessReview.

Source: k8s.io/apimachinery pkg/fields/selector.go, pkg/labels/selector.go; k8s.io/apiserver
plugin/pkg/authorizer/webhook (which operators are passed on).
"""

from __future__ import annotations

import re
from typing import Final

Requirement = dict[str, object]

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}"
_VALUES: Final = rf"\(\s*((?:{_NAME})?(?:\s*,\s*(?:{_NAME})?)*)\s*\)"
_LABEL: Final = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<set>(?<=\s)in\b|(?<=\s)notin\b)\s*{_VALUES}"
    rf"|(?P<operator>==|=|!=|>|<)\s*(?P<value>(?:{_NAME})?))?)\s*",
    re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_TERM: Final = re.compile(r"((?:[^\\,=!]|\\[\\,=])*)(==|!=|=)((?:[^\\,=]|\\[\\,=])*)")


def field_requirements(selector: str) -> list[Requirement]:
    """Return the requirements of ``metadata.name=a,spec.nodeName!=b``; none if it cannot be parsed."""
    found: list[Requirement] = []
    at = 0
    while at < len(selector):
        if selector[at] == ",":
            at += 1
            continue
        term = _TERM.match(selector, at)
        if term is None or (term.end() < len(selector) and selector[term.end()] != ","):
            return []
        key, value = (_ESCAPE.sub(r"\1", part) for part in (term[1], term[3]))
        found.append({"key": key, "operator": "NotIn" if term[2] == "!=" else "In", "values": [value]})
        at = term.end()
    return found


def label_requirements(selector: str) -> list[Requirement]:
    """Return the requirements of ``a=b,c in (d, e),!f``; none if it cannot be parsed.

    Requirements with ``<`` and ``>`` are left out: a SubjectAccessReview does not have these operators.
    """
    found: list[Requirement] = []
    at = 0
    while at < len(selector):
        term = _LABEL.match(selector, at)
        if term is None or (term.end() < len(selector) and selector[term.end()] != ","):
            return []
        at = term.end() + 1
        if term["absent"]:
            found.append({"key": term["absent"], "operator": "DoesNotExist"})
        elif term["set"]:
            values = sorted({each.strip() for each in term[4].split(",")})
            found.append(
                {"key": term["key"], "operator": {"in": "In"}.get(term["set"], "NotIn"), "values": values}
            )
        elif term["operator"] in ("<", ">"):
            if not re.fullmatch(r"[+-]?[0-9]+", term["value"]):
                return []
        elif term["operator"]:
            operator = "NotIn" if term["operator"] == "!=" else "In"
            found.append({"key": term["key"], "operator": operator, "values": [term["value"]]})
        else:
            found.append({"key": term["key"], "operator": "Exists"})
    return found
