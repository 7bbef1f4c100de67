"""A load test of your own policies: latency and throughput under a planned load, with limits.

Users post reviews to a gateway (``--via direct``), or create objects at an API server that calls the gateway
(``--via apiserver``), each at a constant rate. Failures, limits and exit status: see ``README.md``.

Source: Locust's documentation, "Increase performance with a faster HTTP client", "Customizing response time
bucketing" and "Exit codes".
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gevent
import gevent.pool
import locust.stats
import orjson
from locust import FastHttpUser, constant_throughput, events, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS, FastHttpSession
from locust.event import EventHook
from locust.runners import LocalRunner, WorkerRunner

# Locust may run in any folder and imports only this file.
sys.path.insert(0, str(Path(__file__).parents[1]))

from loadtest.locust_options import PATH, Target, add_options, check, limits
from loadtest.locust_requests import Create, Review, creates, read_corpus, reviews
from loadtest.locust_verdict import Found, Outcome, Plan, Schedule, of_create, of_review, verdict

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from locust.argument_parser import LocustArgumentParser
    from locust.contrib.fasthttp import ResponseContextManager
    from locust.env import Environment

    from loadtest.locust_verdict import Criterion

STOP_TIMEOUT_S = 10.0
"""How long a run waits at its end for answers, without ``--stop-timeout``: the slowest answers count too."""
DELETERS = 10
PLAN = Plan()
LINES: list[Criterion | str] = []
"""The verdict, printed after Locust's own tables."""


def _three_digits(response_time: float) -> float:
    """Round milliseconds for Locust's statistics, whose own buckets are too wide below one millisecond."""
    return float(f"{response_time:.3g}")


locust.stats.bucket_response_time = _three_digits  # type: ignore[assignment]


class SteadyUser(FastHttpUser):
    """One connection that sends the requests of the corpus in turn, at a constant rate."""

    abstract = True
    rate: ClassVar[float]
    corpus: ClassVar[list[Any]]

    def on_start(self) -> None:
        """Start with the first request."""
        self._turns: Iterator[Any] = itertools.cycle(self.corpus)
        self._schedule: Schedule = PLAN.join(self.rate, time.monotonic())

    def on_stop(self) -> None:
        """End the schedule, if the run continues without this user."""
        self._schedule.end = self._schedule.end or time.monotonic()

    @task
    def turn(self) -> None:
        """Send the next request."""
        if self._schedule.end is None:
            # While a run is being stopped, Locust would drop the answer.
            self._schedule.sent += 1
            self.send(next(self._turns))

    def send(self, turn: Any) -> None:  # noqa: ANN401
        """Send *turn*, one of ``corpus``, and count its answer."""
        raise NotImplementedError


class ReviewUser(SteadyUser):
    """Posts reviews to a gateway."""

    def send(self, turn: Review) -> None:
        """Post a review with a new uid."""
        body, uid = turn.body()
        with self.client.post(turn.path, data=body, name=turn.name, catch_response=True) as answer:
            status, content, problem = _read(answer)
            _count(answer, Outcome(problem) if problem else of_review(status, content, uid))


class CreateUser(SteadyUser):
    """Creates objects at an API server, which calls the registered webhooks."""

    persist: ClassVar[bool]
    created: ClassVar[list[str]] = []
    """Paths of the stored objects."""

    def send(self, turn: Create) -> None:
        """Create an object, by default as a dry run."""
        path = turn.path if self.persist else f"{turn.path}?dryRun=All"
        with self.client.post(path, data=turn.body, name=turn.name, catch_response=True) as answer:
            status, content, problem = _read(answer)
            _count(answer, Outcome(problem) if problem else of_create(status, content, turn.prefix))
        if self.persist and status == 201:
            self.created.append(f"{turn.path}/{orjson.loads(content)['metadata']['name']}")


def _read(answer: ResponseContextManager) -> tuple[int, bytes, str]:
    """Return status and body of *answer*, and an error of the connection or an empty string."""
    error = answer.request_meta["exception"]
    if answer.status_code == 0:
        return 0, b"", f"no answer: {error!r}"
    try:
        return answer.status_code, answer.content or b"", ""
    except FAILURE_EXCEPTIONS as failure:
        return 0, b"", f"incomplete answer: {failure!r}"


def _count(answer: ResponseContextManager, outcome: Outcome) -> None:
    PLAN.denied += outcome.denied
    if outcome.problem:
        answer.failure(outcome.problem)  # type: ignore[no-untyped-call]
    else:
        answer.success()  # type: ignore[no-untyped-call]


# -- before the run -------------------------------------------------------------------------------


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: LocustArgumentParser) -> None:
    add_options(parser)


@events.init.add_listener  # type: ignore[untyped-decorator]
def _use_options(environment: Environment, **_: object) -> None:
    options = environment.parsed_options
    assert options is not None
    try:
        check(options, distributed=not isinstance(environment.runner, LocalRunner))
        target = Target.of(options)
        SteadyUser.wait_time = constant_throughput(options.rate)
        user = _prepare(options, target)
    except ValueError as error:
        raise SystemExit(f"locustfile: {error}") from None
    SteadyUser.rate = options.rate
    SteadyUser.insecure = not target.verify
    SteadyUser.ssl_context_factory = staticmethod(lambda **_: target.tls)
    SteadyUser.default_headers = target.headers
    environment.user_classes = [user]
    environment.host = target.host
    environment.stop_timeout = environment.stop_timeout or STOP_TIMEOUT_S
    if options.stop_after:
        listener = _stop_after(environment, options.stop_after)
        events.request.add_listener(listener)  # type: ignore[no-untyped-call]


def _prepare(options: Namespace, target: Target) -> type[FastHttpUser]:
    """Return the class of users for *options*, with its requests."""
    documents = read_corpus(Path(options.corpus))
    if options.via == "direct":
        ReviewUser.corpus = reviews(documents, options.path or [PATH])
        return ReviewUser
    CreateUser.corpus, left_out = creates(documents, options.namespace, target.get)
    CreateUser.persist = options.persist
    for line in left_out:
        print(f"locustfile: left out {line}", file=sys.stderr)
    return CreateUser


def _stop_after(environment: Environment, answers: int) -> Callable[..., None]:
    def stop(**_: object) -> None:
        assert environment.runner is not None
        # Only the first of the concurrent answers ends the run.
        if environment.stats.total.num_requests == answers:
            gevent.spawn(environment.runner.quit)

    return stop


# -- during and after the run ---------------------------------------------------------------------


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _begin(**_: object) -> None:
    PLAN.clear()


@events.report_to_master.add_listener  # type: ignore[untyped-decorator]
def _report(client_id: str, data: dict[str, object]) -> None:
    data["plan"] = PLAN.report(time.monotonic())


@events.worker_report.add_listener  # type: ignore[untyped-decorator]
def _receive(client_id: str, data: dict[str, dict[str, int]]) -> None:
    PLAN.receive(client_id, data["plan"])


@events.test_stopping.add_listener  # type: ignore[untyped-decorator]
def _close(**_: object) -> None:
    PLAN.close(time.monotonic())


@events.test_stop.add_listener  # type: ignore[untyped-decorator]
def _delete(environment: Environment, **_: object) -> None:
    """Delete the stored objects."""
    if not CreateUser.created:
        return
    client = FastHttpSession(
        environment.host,
        EventHook(),  # type: ignore[no-untyped-call]
        None,
        insecure=SteadyUser.insecure,
        ssl_context_factory=SteadyUser.ssl_context_factory,
        headers=SteadyUser.default_headers,
        concurrency=DELETERS,
    )

    def delete(path: str) -> str:
        answer = client.delete(f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
        gone = answer.status_code in (200, 202, 404)
        return "" if gone else f"{path}: HTTP status {answer.status_code}: {answer.content!r:.300}"

    problems = [problem for problem in gevent.pool.Pool(DELETERS).map(delete, CreateUser.created) if problem]
    LINES.append(f"{len(CreateUser.created) - len(problems)} of {len(CreateUser.created)} objects deleted")
    LINES.extend(f"not deleted: {problem}" for problem in problems)
    CreateUser.created.clear()


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _judge(environment: Environment, **_: object) -> None:
    """Set the exit status; not in Locust's workers, because the master has the sums."""
    if isinstance(environment.runner, WorkerRunner):
        return
    if isinstance(environment.runner, LocalRunner):
        # A signal ends the run without stopping it.
        environment.runner.stop()
    options, total = environment.parsed_options, environment.stats.total
    assert options is not None
    p99_ms = total.get_response_time_percentile(0.99) or 0.0
    found = Found(PLAN.counts(time.monotonic()), total.num_requests, total.num_failures, p99_ms)
    criteria = verdict(found, limits(options))
    all_deleted = not any(str(line).startswith("not deleted") for line in LINES)
    LINES.extend(criteria)
    environment.process_exit_code = 0 if all_deleted and all(line.passed for line in criteria) else 1


@events.quit.add_listener  # type: ignore[untyped-decorator]
def _print(**_: object) -> None:
    for line in LINES:
        print(line)
