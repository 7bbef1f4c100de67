"""A control: the webhook server of agnhost, Kubernetes' own example, in Go.

It answers as webhooks do that use the types of k8s.io/api: it decodes the review, then its object as a Pod,
and applies one policy. Kubernetes' end-to-end tests run the same code.

``python -m loadtest.agnhost`` builds it if necessary, with Go, and prints its path. The program is kept with
those of the end-to-end tests and built from the same versions.

Source: kubernetes test/images/agnhost/webhook.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tests.e2e.binaries import MODULES, VERSIONS, pinned
from tests.e2e.golang import CannotBuild, folder_of, go, kept

if TYPE_CHECKING:
    from pathlib import Path

PATH: Final = "/pods"
"""Allows a Pod unless a label or the name of a container forbids it."""
_MODULE: Final = MODULES / "kubernetes" / VERSIONS[0]
_PROGRAM: Final = "agnhost"
_FLAGS: Final = ("-ldflags=-s -w",)


def obtain(*, build: bool = False) -> Path | None:
    """Return the program that was built for the pinned versions and the installed Go; None if there is none.

    Args:
        build: Build it instead of returning None; takes minutes.

    Raises:
        CannotBuild: *build*, and Go is not installed or failed.
    """
    name = f"{_PROGRAM}-{pinned(_MODULE, 'k8s.io/kubernetes')}"
    sources = [_MODULE / "go.mod", _MODULE / "go.sum", _MODULE / _PROGRAM / "main.go"]
    if build:
        return kept(name, sources, _FLAGS, _make) / _PROGRAM
    try:
        program = folder_of(name, sources, _FLAGS) / _PROGRAM
    except CannotBuild:
        return None
    return program if program.is_file() else None


def _make(programs: Path) -> None:
    go("build", *_FLAGS, "-o", str(programs / _PROGRAM), f"./{_PROGRAM}", cwd=_MODULE)


def command(program: Path, certificate: Path, key: Path) -> list[str]:
    """Return the command that serves HTTPS with *certificate* and *key*, PEM files. It lacks ``--port``."""
    return [str(program), "webhook", "--tls-cert-file", str(certificate), "--tls-private-key-file", str(key)]


if __name__ == "__main__":
    try:
        print(obtain(build=True))
    except CannotBuild as error:
        sys.exit(f"loadtest.agnhost: {error}")
