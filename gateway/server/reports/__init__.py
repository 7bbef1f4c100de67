"""Reports and Events in the cluster about what webhooks found."""
