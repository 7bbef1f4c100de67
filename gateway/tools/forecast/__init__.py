"""What a version of Kubernetes changes for a configuration and for objects, before the upgrade."""
