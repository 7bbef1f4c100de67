"""``replay``: recorded reviews through another configuration, and what differs."""
