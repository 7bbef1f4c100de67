"""Reviews without the HTTPS front end: ``admission-gateway review`` and ``test``."""
