"""Builds the Go programs that the benchmarks use: ``webhook``, ``worker`` and ``reviews``.

Nothing generated is kept in the tree. The worker's protocol code is made from ``protos/`` at every build, by
the protoc of grpcio-tools and the plugins that ``tools/go.mod`` pins, and laid over the sources with go's
``-overlay``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.e2e.golang import ROOT, go, kept, run

SOURCES: Final = ROOT / "tests" / "e2e" / "tools"
PROTO: Final = "admissiongateway/worker/v1/worker.proto"
MODULE: Final = "admission-gateway/tests/e2e/tools"
PROGRAMS: Final = ("webhook", "worker", "reviews")
_PLUGINS: Final = {
    "protoc-gen-go": "google.golang.org/protobuf/cmd/protoc-gen-go",
    "protoc-gen-go-grpc": "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
}


def build_tools() -> dict[str, Path]:
    """Return the executables, by name of the program.

    Raises:
        CannotBuild: there is no Go toolchain, or it failed.
    """
    sources = sorted(file for file in SOURCES.rglob("*") if file.suffix in (".go", ".mod", ".sum"))
    folder = kept("tools", [*sources, ROOT / "protos" / PROTO], [], _make)
    return {name: folder / name for name in PROGRAMS}


def _make(programs: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plugins, generated = Path(folder, "plugins"), Path(folder, "generated")
        for made in (plugins, generated):
            made.mkdir()
        go("build", "-o", f"{plugins}{os.sep}", *_PLUGINS.values(), cwd=SOURCES)
        _generate(plugins, generated)
        files = {str(SOURCES / file.relative_to(generated)): str(file) for file in generated.rglob("*.go")}
        overlay = Path(folder, "overlay.json")
        overlay.write_text(json.dumps({"Replace": files}))
        targets = [f"./{name}" for name in PROGRAMS]
        go("build", f"-overlay={overlay}", "-o", f"{programs}{os.sep}", *targets, cwd=SOURCES)


def _generate(plugins: Path, generated: Path) -> None:
    package = f"M{PROTO}={MODULE}/workerpb"
    outputs = [
        f"--{kind}_{option}"
        for kind in ("go", "go-grpc")
        for option in (f"out={generated}", f"opt=module={MODULE}", f"opt={package}")
    ]
    chosen = [f"--plugin={name}={plugins / name}" for name in _PLUGINS]
    proto_path = f"-I{ROOT / 'protos'}"
    run(sys.executable, "-m", "grpc_tools.protoc", proto_path, *chosen, *outputs, PROTO, cwd=SOURCES)
