"""Reviews without the HTTPS front end, for commands such as ``review`` and ``test``."""
