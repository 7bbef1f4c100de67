"""SDK for policy workers in Python: a policy is a function, and ``PolicyServer`` serves it.

``README.md`` in this folder has a complete worker; ``workers.samples`` has sample policies.
"""

from __future__ import annotations

import os

# gRPC reads this when it is imported. Workers never fork, and the registry of gRPC's fork handlers leaks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from workers.review import Cause, Denied, Review
from workers.server import PolicyServer

__all__ = ["PolicyServer", "Review", "Denied", "Cause"]
