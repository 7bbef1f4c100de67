"""What Kubernetes makes of an object before admission sees it: defaults, and the Pods of workloads."""
