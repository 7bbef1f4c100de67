"""``import`` and ``sync``: convert the webhooks of a cluster into a configuration of the gateway."""
