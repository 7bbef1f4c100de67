"""W3C Trace Context: the ``traceparent`` that the gateway sends with a call.

A policy runs in this context if the worker's program uses OpenTelemetry. Nothing of OpenTelemetry is imported
here before the program has done so: without a tracer of the program no span could use the context. The SDK
makes no spans of its own.

Source: https://www.w3.org/TR/trace-context/#traceparent-header-field-values; OpenTelemetry specification,
"Context" and "Propagators API".
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_TRACER_API: Final = "opentelemetry.trace"


def valid_traceparent(text: str) -> str:
    """Return *text* if it is a traceparent, otherwise the empty string."""
    return text if _FORM.fullmatch(text) else ""


def trace_id(traceparent: str) -> str:
    """Return the trace id of a valid *traceparent*; empty if that is empty."""
    return traceparent[3:35]


@contextmanager
def continued(traceparent: str) -> Iterator[None]:
    """Make *traceparent*, valid or empty, the current context inside the block, also for new tasks."""
    if not traceparent or _TRACER_API not in sys.modules:
        yield
        return
    from opentelemetry.context import attach, detach
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        detach(token)
