"""The SDK for policy workers in Python: write a function per policy, ``PolicyServer`` does the rest.

``README.md`` beside this file shows a whole worker; ``workers.samples`` are some to read and run.
"""

from __future__ import annotations

import os

# Read by grpc when it is imported. Workers never fork (processes are started afresh), and gRPC's fork
# handlers keep a registry that only grows.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from workers.review import Cause, Denied, Review
from workers.server import PolicyServer

__all__ = ["PolicyServer", "Review", "Denied", "Cause"]
