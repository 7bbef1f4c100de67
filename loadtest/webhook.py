"""A webhook over HTTPS that allows everything, for what it costs the gateway to ask one.

It has the gateway's own front end, the cheapest at hand, so that as little as possible is somebody else's.

``python -m loadtest.webhook --state DIR`` prints its address to standard error and serves until SIGTERM.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from loadtest.floor import PATH, fixed_answer, serve

if TYPE_CHECKING:
    from gateway.serving.message import HttpRequest


def allow(request: HttpRequest, _: object) -> None:
    """Answer *request* with an AdmissionReview of its own uid."""
    request.respond(200, fixed_answer(request.body))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Allows every AdmissionReview.")
    parser.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="where the certificate is kept"
    )
    uvloop.run(serve(allow, {PATH: "anything"}, parser.parse_args().state))


if __name__ == "__main__":
    main()
