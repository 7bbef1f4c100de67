"""Objects as YAML that Kubernetes reads as they are meant.

kubectl reads another YAML than Python writes: to it a plain ``y`` may be true, and a plain ``1e3`` a number.
What does not begin as a word does is therefore put in quotes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORD: Final = re.compile(r"[A-Za-z/].+", re.DOTALL)


class _Dumper(yaml.SafeDumper):
    """Writes lists and texts out each time, without anchors."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _WORD.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(document: Mapping[str, object]) -> str:
    """Return *document* as YAML, its fields in their order and every text on one line."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=1_000_000)
