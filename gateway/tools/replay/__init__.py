"""``admission-gateway replay``: recorded reviews through another configuration, and what differs."""
