"""Load on a gateway of your own, with reviews of your own: how long do my policies take, and do they keep up?

Each user posts the reviews of a folder in turn, each time with a uid of its own, as the API server does. An
answer counts as a failure if it is no AdmissionReview for that uid, or if a webhook failed closed (code 500
and more). A denial is an answer like any other. See ``README.md`` beside this file.

Source: Locust's documentation, "Increase performance with a faster HTTP client" and "Exit codes".
"""

from __future__ import annotations

import itertools
import ssl
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from locust import FastHttpUser, constant_throughput, events, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

HERE = Path(__file__).parent


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: LocustArgumentParser) -> None:
    group = parser.add_argument_group("AdmissionReviews")
    group.add_argument(
        "--corpus",
        default=str(HERE / "corpus"),
        env_var="LOADTEST_CORPUS",
        help="folder of AdmissionReviews, *.json (default: %(default)s)",
    )
    group.add_argument(
        "--path",
        default="/validate",
        env_var="LOADTEST_PATH",
        help="the gateway's path (default: %(default)s)",
    )
    group.add_argument(
        "--rate",
        type=float,
        default=10.0,
        env_var="LOADTEST_RATE",
        help="reviews a second for each user (default: %(default)s)",
    )
    group.add_argument(
        "--max-p99-ms",
        type=float,
        default=1000.0,
        env_var="LOADTEST_MAX_P99_MS",
        help="a higher 99th percentile makes the exit status 1 (default: %(default)s)",
    )
    group.add_argument(
        "--max-failure-ratio",
        type=float,
        default=0.0,
        env_var="LOADTEST_MAX_FAILURE_RATIO",
        help="a higher share of failures makes the exit status 1 (default: %(default)s)",
    )


def read_corpus(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return name and content of every review in *folder*, by name.

    Raises:
        ValueError: there is none, or one that is no AdmissionReview.
    """
    reviews = []
    for path in sorted(folder.glob("*.json")):
        review = orjson.loads(path.read_bytes())
        if not isinstance(review, dict) or not isinstance(review.get("request"), dict):
            raise ValueError(f"{path}: expected an AdmissionReview with a request")
        reviews.append((path.stem, review))
    if not reviews:
        raise ValueError(f"{folder}: expected AdmissionReviews in files named *.json, found none")
    return reviews


@events.init.add_listener  # type: ignore[untyped-decorator]
def _use_options(environment: Environment, **_: object) -> None:
    options = environment.parsed_options
    assert options is not None
    try:
        ReviewUser.reviews = read_corpus(Path(options.corpus))
        ReviewUser.wait_time = constant_throughput(options.rate)
    except ValueError as error:
        raise SystemExit(f"locustfile: {error}") from None
    ReviewUser.path = options.path


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _judge(environment: Environment, **_: object) -> None:
    options, total = environment.parsed_options, environment.stats.total
    assert options is not None
    p99_ms = total.get_response_time_percentile(0.99) or 0.0
    print(
        f"{total.num_requests} reviews, {total.fail_ratio:.2%} failed "
        f"(at most {options.max_failure_ratio:.2%}), p99 {p99_ms:g} ms (at most {options.max_p99_ms:g} ms)"
    )
    passed = (
        total.num_requests > 0
        and total.fail_ratio <= options.max_failure_ratio
        and p99_ms <= options.max_p99_ms
    )
    environment.process_exit_code = 0 if passed else 1


def _any_certificate() -> Callable[..., ssl.SSLContext]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return lambda **_: context


class ReviewUser(FastHttpUser):
    """One connection that posts reviews at a steady rate, as long as the answers keep up with it."""

    insecure = True
    """The gateway's certificate is not checked: this measures it, and trusts it with nothing."""
    ssl_context_factory = staticmethod(_any_certificate())
    """One for all: made for each user, it reads the system's roots, and the first reviews wait for that."""
    reviews: list[tuple[str, dict[str, Any]]]
    path: str

    def on_start(self) -> None:
        """Begin with the first review."""
        self._turns: Iterator[tuple[str, dict[str, Any]]] = itertools.cycle(self.reviews)

    @task
    def review(self) -> None:
        """Post the next review."""
        name, review = next(self._turns)
        uid = str(uuid.uuid4())
        body = orjson.dumps({**review, "request": {**review["request"], "uid": uid}})
        headers = {"Content-Type": "application/json"}
        with self.client.post(
            self.path, data=body.decode(), headers=headers, name=name, catch_response=True
        ) as answer:
            problem = problem_of(answer.status_code, answer.content, uid)
            if problem:
                answer.failure(problem)


def problem_of(status: int, body: bytes | None, uid: str) -> str:
    """Return what is wrong with an answer to the review *uid*; empty if nothing is."""
    if status != 200:
        return f"HTTP status {status}"
    try:
        response = orjson.loads(body or b"")["response"]
        found, allowed = response["uid"], response["allowed"]
    except (ValueError, KeyError, TypeError):
        return "not an AdmissionReview"
    if found != uid:
        return "the uid is not that of the review"
    code = (response.get("status") or {}).get("code", 0)
    return f"failed closed, code {code}" if not allowed and code >= 500 else ""
