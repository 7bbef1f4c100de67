"""A collector that drops all spans: ``python -m loadtest.span_sink``."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Read the spans, and answer OK."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until the process ends; the first line on standard error has the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(f"spans on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
