"""The floor that the gateway is compared with: the gateway's own HTTP front end and nothing behind it.

TLS, HTTP and routing are the gateway's; a review is parsed with orjson and answered with the same bytes every
time. What a gateway costs above the floor is matching, calls to workers, decisions and metrics.

``python -m loadtest.floor REVIEW --state DIR`` logs its address and serves until SIGTERM. With ``--any`` it
answers each review with the review's own uid: that is the webhook of the HTTPS cases, the cheapest there is.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson
import uvloop

from gateway.config.kinds.serving_settings import ServerTls
from gateway.server.process.serve import relax_garbage_collection
from gateway.server.serving.connection_table import ConnectionTable
from gateway.server.serving.devcert import make_development_certificate
from gateway.server.serving.listener import Listener
from gateway.server.serving.routes import Router
from gateway.server.serving.tls import ServerCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.pure.core.deadline import Deadline
    from gateway.server.serving.message import Exchange

PATH = "/validate"

Selected = TypeVar("Selected")


def allowing(review: bytes) -> bytes:
    """Return the AdmissionReview that allows *review*, in the gateway's own order of members."""
    uid = orjson.loads(review)["request"]["uid"]
    return orjson.dumps(
        {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": uid, "allowed": True},
        }
    )


async def serve(
    review: Callable[[Exchange, Selected, Deadline], None], paths: Mapping[str, Selected], state: Path
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        review: Answers a request, at once or later; its second argument is the value of the path.
        paths: A value for each path.
        state: The folder that keeps the certificate.
    """
    certificate = ServerCertificate(ServerTls(*make_development_certificate(state)))
    listener = Listener("127.0.0.1:0", ConnectionTable(Router(review, paths)), certificate)
    await listener.start()
    relax_garbage_collection()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    print(f"serving on https://127.0.0.1:{listener.port}", file=sys.stderr, flush=True)
    await stopping.wait()
    await listener.close()


def answer_with(exchange: Exchange, answer: bytes, _: Deadline) -> None:
    """Parse the request and answer it with *answer*."""
    orjson.loads(exchange.request.body)
    exchange.respond(200, answer)


def answer_any(exchange: Exchange, _answer: bytes, _: Deadline) -> None:
    """Answer the request with its own uid."""
    exchange.respond(200, allowing(exchange.request.body))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Allows every AdmissionReview.")
    parser.add_argument("review", type=Path, metavar="REVIEW", help="AdmissionReview whose uid is answered")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="folder for the certificate")
    parser.add_argument("--any", action="store_true", help="answer each review with its own uid")
    arguments = parser.parse_args()
    answer = answer_any if arguments.any else answer_with
    uvloop.run(serve(answer, {PATH: allowing(arguments.review.read_bytes())}, arguments.state))


if __name__ == "__main__":
    main()
