"""``admission-gateway conformance``: holds a running worker, in whatever language, against the contract.

Source: protos/README.md.
"""
