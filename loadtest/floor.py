"""The floor that the gateway is measured against: its own front end, and nothing behind it.

TLS, HTTP and routing are the gateway's; a review is parsed with orjson and answered with the same bytes every
time. What the gateway costs above it is matching, calling workers, deciding and counting.

``python -m loadtest.floor REVIEW --state DIR`` prints its address to standard error and serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson
import uvloop

from gateway.config.model import ServerTls
from gateway.process.serve import relax_garbage_collection
from gateway.serving.connection_table import ConnectionTable
from gateway.serving.devcert import make_development_certificate
from gateway.serving.listener import Listener
from gateway.serving.routes import Router
from gateway.serving.tls import ServerCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.serving.message import HttpRequest

PATH = "/validate"

Selected = TypeVar("Selected")


def fixed_answer(review: bytes) -> bytes:
    """Return an AdmissionReview that allows *review*, as the gateway words it."""
    uid = orjson.loads(review)["request"]["uid"]
    return orjson.dumps(
        {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": uid, "allowed": True},
        }
    )


async def serve(
    review: Callable[[HttpRequest, Selected], None],
    paths: Mapping[str, Selected],
    state: Path,
    *,
    gives_tickets: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        review: Answers a request, at once or later; it is told what the path stands for.
        paths: What there is, by path.
        state: The folder that keeps the certificate.
        gives_tickets: Whether TLS sessions can be resumed. The gateway gives none: kube-apiserver never does.
    """
    certificate = ServerCertificate(ServerTls(*make_development_certificate(state)))
    if gives_tickets:
        certificate.context.options &= ~ssl.OP_NO_TICKET
        certificate.context.num_tickets = 1
    listener = Listener("127.0.0.1:0", ConnectionTable(Router(review, paths)), certificate)
    await listener.start()
    relax_garbage_collection()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    print(f"serving on https://127.0.0.1:{listener.port}", file=sys.stderr, flush=True)
    await stopping.wait()
    await listener.close()


def answer_with(request: HttpRequest, answer: bytes) -> None:
    """Answer *request* with *answer*, whatever it says."""
    orjson.loads(request.body)
    request.respond(200, answer)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Answers every AdmissionReview without a look at it.")
    parser.add_argument(
        "review", type=Path, metavar="REVIEW", help="an AdmissionReview, JSON; its uid is answered"
    )
    parser.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="where the certificate is kept"
    )
    parser.add_argument("--tickets", action="store_true", help="let TLS sessions be resumed")
    arguments = parser.parse_args()
    answer = fixed_answer(arguments.review.read_bytes())
    uvloop.run(serve(answer_with, {PATH: answer}, arguments.state, gives_tickets=arguments.tickets))


if __name__ == "__main__":
    main()
