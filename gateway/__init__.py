"""admission-gateway: one admission webhook in front of many gRPC policy workers.

Imports nothing, so that ``gateway.pb`` and ``gateway.core`` are cheap to import from a worker.
"""

__version__ = "0.1.0"
