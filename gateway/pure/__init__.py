"""Decisions without I/O: requests and their evaluation, expressions, schemas and admission policies."""
