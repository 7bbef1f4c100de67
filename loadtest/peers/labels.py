"""Ten mutating policies that every engine can express: each sets the label of its own name."""

from __future__ import annotations

from typing import Final

LABELS_SET: Final = "l10"
"""Where peers take the name of a set of ``loadtest.policies``. These need no worker of each language."""
LABELS: Final = tuple(f"label{number}" for number in range(10))
"""The names of the policies, and of their labels."""
APPLIED: Final = "applied"
"""The value of the labels."""


def expression(label: str) -> str:
    """Return the ApplyConfiguration that sets *label*, in CEL."""
    return f'Object{{metadata: Object.metadata{{labels: {{"{label}": "{APPLIED}"}}}}}}'
