"""Measures the gateway: ``python -m loadtest.bench`` against its floor, ``locustfile.py`` with your policies.

Not installed with the package: it runs from the root of the repository.
"""
