"""matchConditions in CEL, compiled and evaluated as kube-apiserver does it."""
