"""Plans the objects that register the gateway in a cluster, without I/O."""
