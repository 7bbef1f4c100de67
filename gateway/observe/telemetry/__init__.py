"""Metrics of one process, and their sum over several processes. The core does not import this package."""
