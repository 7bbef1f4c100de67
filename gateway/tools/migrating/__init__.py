"""``migrate`` and ``migrate prove``: from another engine to the gateway, and whether both answer alike."""
