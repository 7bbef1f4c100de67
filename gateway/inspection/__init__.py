"""``admission-gateway check --cluster``: what a cluster has registered, held against what is configured."""
