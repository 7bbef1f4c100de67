"""The credentials that the gateway presents to API servers and HTTPS webhooks."""
