"""Generates the SDK's ``pb`` from the worker contract; ``--check`` says whether it is up to date instead."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
PROTO = "admissiongateway/worker/v1/worker.proto"
TARGET = HERE.parent / "workers" / "python" / "admission_gateway_worker" / "pb"
FILES = ("worker_pb2.py", "worker_pb2.pyi")


def generate() -> dict[str, bytes]:
    """Return the generated files, name to content.

    Raises:
        SystemExit: protoc refused the contract; it has said why on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{HERE}", f"--python_out={folder}", f"--pyi_out={folder}", PROTO]
        if protoc.main(arguments) != 0:
            raise SystemExit(1)
        made = (Path(folder) / PROTO).parent
        return {name: (made / name).read_bytes() for name in FILES}


def main() -> int:
    """Write the generated files, or with ``--check`` return 1 if those in the tree differ."""
    files = generate()
    if "--check" in sys.argv[1:]:
        stale = [name for name, content in files.items() if (TARGET / name).read_bytes() != content]
        if stale:
            print(f"{TARGET}: {', '.join(stale)} differ from protos/: run `make protos`", file=sys.stderr)
        return int(bool(stale))
    for name, content in files.items():
        (TARGET / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
