"""JSON Patches (RFC 6902): applied as kube-apiserver does, and derived from two documents."""
