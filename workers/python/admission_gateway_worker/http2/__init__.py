"""HTTP/2 and gRPC framing, bytes in and bytes out: the gateway's client half and the worker's server half.

The package imports nothing else of the gateway.
"""
