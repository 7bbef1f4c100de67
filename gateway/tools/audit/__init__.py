"""`audit`: the stored objects of a cluster against the configuration."""
