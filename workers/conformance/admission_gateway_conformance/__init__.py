"""``admission-gateway conformance``: checks that a running worker, in any language, keeps to the contract.

Source: protos/README.md.
"""

__version__ = "0.1.0"
