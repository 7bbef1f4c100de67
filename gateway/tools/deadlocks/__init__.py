"""Which parts of a cluster cannot start while the gateway is away."""
