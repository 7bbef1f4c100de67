"""Projects of policy workers, written by ``admission-gateway new``."""
