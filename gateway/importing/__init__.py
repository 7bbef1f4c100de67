"""``admission-gateway import``: the webhooks that a cluster has, as the gateway's own configuration."""
