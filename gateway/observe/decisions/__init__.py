"""Records of decisions: their JSON, the decision log, and the recent ones with details. Secret values are
found in objects (``redaction``), by their form (``credential_forms``) and where texts quote them
(``quotations``).
"""
