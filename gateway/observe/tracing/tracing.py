"""The traces of one gateway process through reloads of its configuration."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.base.credentials import request_headers
from gateway.base.errors import ConfigError, Problem
from gateway.base.file_changes import fingerprint, read_as
from gateway.observe.telemetry.metrics import SpanCounts

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.tracing_settings import TracingSettings
    from gateway.observe.tracing.tracer import Tracer

_MISSING: Final = 'traces need optional packages; install "admission-gateway[tracing]"'


@dataclass(frozen=True, slots=True)
class StagedTracing:
    """Settings that can be put in use."""

    settings: TracingSettings | None
    headers: dict[str, str] = field(repr=False)
    """They are sent to the collector."""
    fingerprint: object
    """The state of the files before they were read."""


class Tracing:
    """The tracer of the configuration in force, if it has one. The SDK is imported with the first."""

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.counts = SpanCounts()
        """What became of spans since the process began."""
        self.fingerprint_in_use: object = fingerprint(())
        """The fingerprint of the files when the tracer was made."""

    def fingerprint(self) -> object:
        """Return a value that changes with the files of the tracer, see ``fingerprint_in_use``."""
        return fingerprint(_files(self.tracer.settings if self.tracer is not None else None))

    async def stage(self, settings: TracingSettings | None) -> StagedTracing:
        """Read the files of *settings*, and import the SDK if they need it.

        Raises:
            ConfigError: the SDK is not installed, or the file of the headers cannot be used.
        """
        seen = fingerprint(_files(settings))
        if settings is None:
            return StagedTracing(None, {}, seen)
        try:
            # In a thread, because it takes some hundred milliseconds.
            await asyncio.to_thread(_import)
        except ImportError as error:
            problem = Problem("GatewayConfiguration", "tracing", f"{_MISSING}: {error}")
            raise ConfigError([problem]) from error
        path = settings.headers_file
        headers = {} if path is None else read_as(request_headers, path, "tracing.headersFile")
        return StagedTracing(settings, headers, seen)

    def activate(self, staged: StagedTracing) -> None:
        """Trace by *staged* settings; the spans so far go to the collector before."""
        old, settings, seen = self.tracer, staged.settings, staged.fingerprint
        if (old.settings if old is not None else None) == settings and seen == self.fingerprint_in_use:
            return
        self.tracer, self.fingerprint_in_use = None, seen
        if settings is not None:
            from gateway.observe.tracing.collector import Collector
            from gateway.observe.tracing.tracer import Tracer

            self.counts.begin()
            self.tracer = Tracer(settings, Collector(settings, staged.headers, self.counts))
        if old is not None:
            old.collector.close(lambda: None)

    def reloaded(self, began_at: float, source: str, error: str = "") -> None:
        """Trace a reload that began at *began_at* (monotonic seconds), see ``SpanMaker.reload``."""
        if self.tracer is not None:
            self.tracer.reloaded(began_at, source, error)

    async def close(self) -> None:
        """Send the last spans; this takes some seconds at most."""
        tracer, self.tracer = self.tracer, None
        if tracer is not None:
            from gateway.observe.tracing.collector import CLOSE_S

            closed, loop = asyncio.Event(), asyncio.get_running_loop()

            def end() -> None:
                # The loop may have ended before.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(closed.set)

            tracer.collector.close(end)
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), 2 * CLOSE_S)


def _files(settings: TracingSettings | None) -> tuple[Path | None, ...]:
    if settings is None:
        return ()
    tls = settings.tls
    return settings.headers_file, tls.ca_file, tls.cert_file, tls.key_file


def _import() -> None:
    import gateway.observe.tracing.collector
    import gateway.observe.tracing.tracer  # noqa: F401
