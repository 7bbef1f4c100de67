"""Modules for tests of the worker: a waPC guest as text, and the program in Go of the worker's own tests."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.kit import PATIENCE_S, ROOT

_WAPC: Final = """(module
  (import "wapc" "__guest_response" (func $respond (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "%s")
  (data (i32.const 256) "%s")
  (data (i32.const 1024) "%s")
  ;; Of protocol_version, validate_settings and validate only the length tells which it is.
  (func (export "__guest_call") (param $operation i32) (param $payload i32) (result i32)
    (if (i32.eq (local.get $operation) (i32.const 16)) (then (call $respond (i32.const 0) (i32.const %d)))
      (else (if (i32.eq (local.get $operation) (i32.const 17))
        (then (call $respond (i32.const 256) (i32.const %d)))
        (else (call $respond (i32.const 1024) (i32.const %d))))))
    (i32.const 1)))
"""


def wapc_guest(answer: dict[str, Any]) -> str:
    """Return a waPC guest that accepts all settings and gives *answer* to each review."""
    texts = [json.dumps(each).encode() for each in ("v1", {"valid": True}, answer)]
    quoted = ("".join(f"\\{byte:02x}" for byte in text) for text in texts)
    return _WAPC % (*quoted, *map(len, texts))


@functools.cache
def program() -> bytes | None:
    """Return the program for WASI that does what its settings say; None without Go.

    Its settings are ``{"do": "accept" | "reject" | "mutate"}``; all others than a text are refused.
    """
    if shutil.which("go") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "guest.wasm"
        subprocess.run(
            ["go", "build", "-o", str(built), "."],
            cwd=ROOT / "workers" / "wasm" / "tests" / "guest",
            env={**os.environ, "GOOS": "wasip1", "GOARCH": "wasm"},
            timeout=PATIENCE_S * 5,
            check=True,
        )
        return built.read_bytes()
