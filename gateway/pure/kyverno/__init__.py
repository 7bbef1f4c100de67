"""Kyverno's policies in CEL: how they decide, where that differs from the API server's."""
