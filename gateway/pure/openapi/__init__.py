"""Schemas of Kubernetes' kinds, as OpenAPI v3 documents have them, and the structured merge by them."""
