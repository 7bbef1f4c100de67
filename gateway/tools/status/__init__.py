"""``status`` and ``decisions``: read the admin ports of running gateways, for a terminal or a program.

The overview is that of the admin port's page ``/`` (docs/pages.md). Where the pages cannot be read, its
numbers are made from ``/metrics``.
"""
