"""The cluster: an API client, watches, access checks, and the objects that the gateway reads and writes."""
