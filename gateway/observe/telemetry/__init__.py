"""Metrics. The core does not import this package."""
