"""``help``: a line below a denial, in a webhook or in an annotation of a policy document.

Source: docs/answers.md.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import Text
from gateway.config.yaml.fields import child

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gateway.config.yaml.fields import Problems
    from gateway.pure.core.webhook import Webhook

HELP: Final = "admission-gateway.io/help"
"""The annotation."""
MAX_HELP_CHARS: Final = 256
"""The API server cuts warnings to so many characters, and a denial has a line of it for each webhook."""
_LINE: Final = r"[^\x00-\x1f\x7f-\x9f]+"


def _help_problem(text: str) -> str | None:
    if len(text) <= MAX_HELP_CHARS and re.fullmatch(_LINE, text):
        return None
    return (
        f"found {shown(text)}, expected a text or URL in one line, with 1 to {MAX_HELP_CHARS} characters and "
        "without control characters"
    )


HELP_TEXT: Final = Text(
    "text or URL", _help_problem, minLength=1, maxLength=MAX_HELP_CHARS, pattern=f"^{_LINE}$"
)


def help_of(content: Mapping[str, object], path: str, problems: Problems) -> str:
    """Return the help in the annotation of the policy document *content* at *path*, or "".

    What is wrong with it is added to *problems*.
    """
    metadata = content.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(HELP) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return ""
    if message := _help_problem(text):
        problems.add(child(child(child(path, "metadata"), "annotations"), HELP), message)
        return ""
    return text


def with_help(hooks: Iterable[Webhook], text: str) -> Iterator[Webhook]:
    """Yield *hooks* with the help *text*, unless it is empty."""
    for hook in hooks:
        yield replace(hook, help=text) if text else hook
