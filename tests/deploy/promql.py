"""The names in PromQL expressions, as far as the rules and the dashboard use PromQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGET_LABELS: Final = {"namespace", "pod", "job", "instance"}
"""Labels that Prometheus adds to each series of a target."""
_OF_PROMETHEUS: Final = {"up": frozenset[str](), "ALERTS": frozenset({"alertname", "alertstate"})}
"""Series that Prometheus makes itself."""
_WORDS: Final = {
    *(
        "sum",
        "max",
        "min",
        "count",
        "topk",
        "by",
        "without",
        "on",
        "group_left",
        "or",
        "and",
        "unless",
        "offset",
    ),
    *(
        "absent",
        "absent_over_time",
        "max_over_time",
        "changes",
        "histogram_quantile",
        "increase",
        "min_over_time",
        "rate",
        "time",
    ),
}
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR: Final = re.compile(r"(\w+)\{([^}]*)\}")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|group_left)\s*\(([^)]*)\)")
_DURATION: Final = re.compile(r"\[[^\]]*\]|\boffset [$\w]+")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def unknown_names(expression: str, series: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the metrics and labels of *expression* that *series*, with the labels of each, has not."""
    text = _DURATION.sub("", _TEXT.sub('""', expression))
    series = {**series, **_OF_PROMETHEUS}
    unknown: set[str] = set()
    for name, matchers in _SELECTOR.findall(text):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        unknown |= {f"{name}{{{label}}}" for label in labels - series.get(name, set()) - TARGET_LABELS}
    text = _SELECTOR.sub(r"\1", text)
    grouping = {label for labels in _GROUPING.findall(text) for label in _NAME.findall(labels)}
    names = set(_NAME.findall(_GROUPING.sub("", text))) - _WORDS
    known = {label for name in names for label in series.get(name, set())}
    return unknown | (names - series.keys()) | (grouping - known - TARGET_LABELS)
