"""The credentials that the gateway presents to API servers and to HTTPS webhooks, and how it verifies them.

One implementation for both: users of a kubeconfig with tokens, certificates, exec plug-ins and impersonation.
"""
