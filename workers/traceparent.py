"""W3C Trace Context: the ``traceparent`` that the gateway sends with a call.

Source: https://www.w3.org/TR/trace-context/#traceparent-header-field-values.
"""

from __future__ import annotations

import re
from typing import Final

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def valid_traceparent(text: str) -> str:
    """Return *text* if it is a traceparent, otherwise the empty string."""
    return text if _FORM.fullmatch(text) else ""


def trace_id(traceparent: str) -> str:
    """Return the trace id of a valid *traceparent*; empty if that is empty."""
    return traceparent[3:35]
