"""``test``: cases for policies, in files of the kind PolicyTest."""
