"""Writes objects as YAML that every YAML version reads the same way.

kubectl reads another version of YAML than Python writes: a plain ``y`` may be true, and a plain ``1e3`` a
number. Every text that does not look like a word is therefore quoted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORD: Final = re.compile(r"[A-Za-z/].+", re.DOTALL)


class _Dumper(yaml.SafeDumper):
    """Writes repeated values without anchors."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _WORD.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(document: Mapping[str, object], *, is_compact: bool = False) -> str:
    """Return *document* as YAML, with fields in order and every text on one line.

    *is_compact*: lists and mappings of plain values are on one line, too.
    """
    flow = None if is_compact else False
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=flow, width=1_000_000)
