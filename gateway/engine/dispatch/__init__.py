"""Outbound calls to worker pools and HTTPS webhooks: endpoints, streams, deadlines, retries, hedging, outlier
detection, health checks and keepalive.

The only package of the gateway that imports gRPC.
"""
