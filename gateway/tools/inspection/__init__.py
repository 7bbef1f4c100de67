"""``check``: a configuration alone, against a cluster (``--cluster``), and against the workers
(``--workers``).
"""
