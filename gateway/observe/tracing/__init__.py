"""Traces of reviews by OpenTelemetry: recorded in plain objects, and made into spans after the answer.

``spans`` and ``collector`` import the SDK, and are imported only if traces are configured.
"""
