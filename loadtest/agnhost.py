"""What the gateway is compared with: the webhook server of agnhost, Kubernetes' own example in Go.

It answers as webhooks do that are written with the types of k8s.io/api: the review is decoded, then its
object as a Pod, and one policy looks at it. Kubernetes' end-to-end tests run the same code: it was not
written to lose.

    python -m loadtest.agnhost            # builds it if need be, and prints its path

Needs Go for that; built once, and kept with the programs of the end-to-end suite, whose pins of the newest
Kubernetes it shares.

Source: kubernetes test/images/agnhost/webhook.
"""

from __future__ import annotations

import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadtest.launch import launched
from tests.e2e.binaries import MODULES, VERSIONS, pinned
from tests.e2e.golang import CannotBuild, folder_of, go, kept

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH: Final = "/pods"
"""Decodes the review and its Pod, and allows it unless a label or the name of a container tells it not to."""
_MODULE: Final = MODULES / "kubernetes" / VERSIONS[0]
_PROGRAM: Final = "agnhost"
_FLAGS: Final = ("-ldflags=-s -w",)


@dataclass(frozen=True, slots=True)
class Serving:
    """An agnhost that serves."""

    pid: int
    address: str
    """``https://HOST:PORT``, to be followed by a path."""


def obtain(*, build: bool = False) -> Path | None:
    """Return the program as it is built for the pins and the Go release of now; None if it is not.

    Args:
        build: Build it rather than return None: minutes, the first time.

    Raises:
        CannotBuild: *build*, and there is no Go toolchain, or it failed.
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


def command(binary: Path, port: int, cert_file: Path, key_file: Path) -> list[str]:
    """Return the command line that serves HTTPS on *port*, of every address: agnhost offers no choice of one.

    Args:
        binary: What ``obtain`` returned.
        port: Not 0: it does not say which port it would have got.
        cert_file: PEM, the server's own certificate first.
        key_file: PEM, without a password.
    """
    tls = ["--tls-cert-file", str(cert_file), "--tls-private-key-file", str(key_file)]
    return [str(binary), "webhook", "--port", str(port), *tls]


@contextmanager
def serving(binary: Path, cert_file: Path, key_file: Path, log: Path) -> Iterator[Serving]:
    """Run agnhost on a free port and stop it in the end; it ends with this process in any case.

    Args:
        binary: What ``obtain`` returned.
        cert_file: PEM, the server's own certificate first.
        key_file: PEM, without a password.
        log: Where its output goes.

    Raises:
        BenchError: it ended at once, or does not accept connections.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with launched("agnhost", command(binary, port, cert_file, key_file), log) as child:
        # It does not say anywhere when it listens.
        child.until(lambda _: _accepts(port))
        yield Serving(child.pid, f"https://127.0.0.1:{port}")


def _accepts(port: int) -> bool | None:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return None
    return True


def main() -> None:
    """Build agnhost if need be, and print its path; exit status 1 if it cannot be built."""
    try:
        print(obtain(build=True))
    except CannotBuild as error:
        sys.exit(f"loadtest.agnhost: {error}")


if __name__ == "__main__":
    main()
