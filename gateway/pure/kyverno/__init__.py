"""Kyverno's policies in CEL: how they behave at a review, and what they are for workloads."""
