"""admission-gateway: one admission webhook in front of many gRPC policy workers."""

__version__ = "0.1.0"
