"""Records of decisions: their form, the log of them, and the recent ones."""
