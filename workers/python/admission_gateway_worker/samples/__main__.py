"""``python -m admission_gateway_worker.samples``: serves the sample policies."""

from __future__ import annotations

from admission_gateway_worker.samples import server

server.main()
