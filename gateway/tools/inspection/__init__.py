"""``admission-gateway check --cluster``: compares the registration in a cluster with the configuration."""
