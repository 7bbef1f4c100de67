"""Outbound calls: worker pools and HTTPS webhooks, their endpoints, and the calls in flight.

The only package of the gateway that imports gRPC.
"""
