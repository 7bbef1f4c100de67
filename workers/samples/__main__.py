"""``python -m workers.samples``: serves the sample policies."""

from __future__ import annotations

from workers.samples import server

server.main()
