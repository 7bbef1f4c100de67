"""Each kind and each group of settings: a dataclass, and the reader that makes one from a document."""
