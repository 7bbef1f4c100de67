"""What has to be registered in a cluster so that the API server calls the gateway: planned, without I/O."""
