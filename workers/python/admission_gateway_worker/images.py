"""Reads the names of container images.

Source: github.com/distribution/reference, normalize.go; opencontainers/distribution-spec.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_DEFAULT_REGISTRY: Final = "docker.io"
_DEFAULT_TAG: Final = "latest"


class Image(NamedTuple):
    """The name of an image, with the parts that container runtimes assume if they are absent."""

    registry: str
    """HOST or HOST:PORT."""
    path: str
    """The path in the registry, such as ``library/nginx``."""
    tag: str
    """``latest`` if there is neither a tag nor a digest; empty with a digest alone."""
    digest: str
    """``sha256:...``; empty if there is none."""

    @property
    def repository(self) -> str:
        """Registry and path."""
        return f"{self.registry}/{self.path}"


def parse(name: str) -> Image:
    """Return the parts of the image *name*, whose characters are not checked."""
    rest, _, digest = name.partition("@")
    # A colon before the last slash is the registry's port.
    head, slash, last = rest.rpartition("/")
    last, _, tag = last.partition(":")
    path = f"{head}{slash}{last}"
    first, slash, others = path.partition("/")
    # A repository has no capital letters.
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        registry, path = first, others
    else:
        registry = _DEFAULT_REGISTRY
    if registry == "index.docker.io":
        registry = _DEFAULT_REGISTRY
    if registry == _DEFAULT_REGISTRY and "/" not in path:
        path = f"library/{path}"
    return Image(registry, path, tag or ("" if digest else _DEFAULT_TAG), digest)
