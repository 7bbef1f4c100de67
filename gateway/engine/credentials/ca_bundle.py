"""The root certificates of one source in the cluster (``caBundleFrom``). The last valid ones are in force."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from gateway.base.certificates import roots_among
from gateway.base.files import UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.core.webhook import CaBundleSource

    BundleState = Literal["current", "kept", "missing"]
    """The present ones, the last valid ones instead of the present ones, or none."""

log = logging.getLogger(__name__)

_WARNING: Final = "CA bundle of %s cannot be used, %s: %s"
MAX_BYTES: Final = 1024 * 1024
"""As much as a Secret or a ConfigMap holds. The roots of a Linux distribution have 220 KiB."""


class CaBundle:
    """The root certificates of *source*."""

    def __init__(self, source: CaBundleSource) -> None:
        self.source = source
        self.pem = b""
        """The last valid certificates, empty if there were none yet. A new value is another object."""
        self.is_read = asyncio.Event()
        """Set once the object has been read, or is known to be missing."""
        self.unread: Callable[[], str] = str
        """Returns why changes of the object do not arrive at present, or "" if they do."""
        self._problem = "it has not been read yet"

    @property
    def problem(self) -> str:
        """Why ``pem`` may not be what the object has. Empty if it is."""
        return self.unread() or self._problem

    @property
    def state(self) -> BundleState:
        """Whether there are root certificates, and whether they are the present ones."""
        if not self.pem:
            return "missing"
        return "kept" if self.problem else "current"

    @property
    def warning(self) -> str:
        """A line about the problem and its effect. Empty if there is none."""
        return _WARNING % (self.source, self._effect, self.problem) if self.problem else ""

    @property
    def _effect(self) -> str:
        return "the last valid one stays in force" if self.pem else "its webhooks fail by their failurePolicy"

    async def wait_until_read(self, timeout_s: float) -> None:
        """Wait up to *timeout_s* seconds until the object has been read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.is_read.wait()

    def see(self, found: bytes | UnusableFileError) -> None:
        """Put *found* in force, or keep the last one; it is the :func:`bundle_in` the present object."""
        before, had_problem = self.pem, self._problem
        self._problem = str(found) if isinstance(found, UnusableFileError) else ""
        if isinstance(found, bytes) and found != before:
            self.pem = found
        self.is_read.set()
        if self._problem:
            if self._problem != had_problem:
                log.warning(_WARNING, self.source, self._effect, self.problem)
        elif self.pem is not before or had_problem:
            count = self.pem.count(b"-----BEGIN CERTIFICATE-----")
            log.info("CA bundle of %s in force for new connections: %d certificates", self.source, count)


def bundle_in(content: bytes | None) -> bytes | UnusableFileError:
    """Return the certificates in *content*, PEM, or why there are none. *content* is None without the field.

    Nothing of the content is in a message. It takes some milliseconds for the roots of a distribution.
    """
    if content is None:
        return UnusableFileError("there is no such object, or it lacks the field")
    if len(content) > MAX_BYTES:
        return UnusableFileError(f"it has more than {MAX_BYTES} bytes")
    try:
        return roots_among(content)[0]
    except UnusableFileError as error:
        return UnusableFileError(f"it {error}")
