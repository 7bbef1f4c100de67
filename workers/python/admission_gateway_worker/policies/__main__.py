"""``python -m admission_gateway_worker.policies``: serves the policies of the library.

Policies that need the API server are served only if the worker has access to it.
"""

from __future__ import annotations

import logging

from admission_gateway_worker import log
from admission_gateway_worker.policies import definitions, server_of
from admission_gateway_worker.policies.cluster import ClusterError, read_access

log.set_up()
found = definitions()
try:
    read_access()
except ClusterError as error:
    names = ", ".join(each.name for each in found if each.needs_cluster)
    logging.getLogger("admission_gateway_worker").warning(
        "no access to the API server, so these policies are not served: %s; %s", names, error
    )
    found = tuple(each for each in found if not each.needs_cluster)
server_of(found).main()
