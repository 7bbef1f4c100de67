"""The inbound side: the HTTPS front end and the admin port."""
