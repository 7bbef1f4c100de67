"""Load on policies of your own: how long do they take, and do they keep up?

Users post reviews to a gateway (``--via direct``), or create objects at an API server with which the gateway
is registered (``--via apiserver``), each at a steady rate. What counts as a failure, and what ends with which
exit status: see ``README.md`` beside this file.

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

# Locust is started anywhere and imports this file alone.
sys.path.insert(0, str(Path(__file__).parents[1]))

from loadtest.locust_answers import Outcome, of_create, of_review
from loadtest.locust_corpus import Create, Review, creates, read_corpus, reviews
from loadtest.locust_options import PATH, add_options, check, limits
from loadtest.locust_plan import Found, Plan, Schedule, verdict
from loadtest.locust_target import Target

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from locust.argument_parser import LocustArgumentParser
    from locust.contrib.fasthttp import ResponseContextManager
    from locust.env import Environment

    from loadtest.locust_plan import Criterion

LAST_ANSWERS_S = 10.0
"""How long a run waits in the end for answers on their way, unless ``--stop-timeout`` says: the slowest are
to count, too."""
DELETERS = 10
PLAN = Plan()
LINES: list[Criterion | str] = []
"""The verdict, printed after Locust's own tables."""


def _three_digits(response_time: float) -> float:
    """Return milliseconds as Locust keeps them; its own buckets are too wide for answers within one."""
    return float(f"{response_time:.3g}")


locust.stats.bucket_response_time = _three_digits  # type: ignore[assignment]


class SteadyUser(FastHttpUser):
    """One connection that sends the requests of the corpus in turn, steadily while the answers keep up."""

    abstract = True
    rate: ClassVar[float]
    corpus: ClassVar[list[Any]]

    def on_start(self) -> None:
        """Begin with the first request."""
        self._turns: Iterator[Any] = itertools.cycle(self.corpus)
        self._schedule: Schedule = PLAN.join(self.rate, time.monotonic())

    def on_stop(self) -> None:
        """End the schedule, if the run goes on without this user."""
        self._schedule.end = self._schedule.end or time.monotonic()

    @task
    def turn(self) -> None:
        """Send the next request."""
        if self._schedule.end is None:
            # Of users that wake while a run is stopped, Locust would drop the answers.
            self._schedule.sent += 1
            self.send(next(self._turns))

    def send(self, turn: Any) -> None:  # noqa: ANN401
        """Send *turn*, one of ``corpus``, and have its answer counted."""
        raise NotImplementedError


class ReviewUser(SteadyUser):
    """Posts reviews to a gateway, as an API server does."""

    def send(self, turn: Review) -> None:
        """Post a review under a uid of its own."""
        body, uid = turn.body()
        with self.client.post(turn.path, data=body, name=turn.name, catch_response=True) as answer:
            status, content, problem = _read(answer)
            _count(answer, Outcome(problem) if problem else of_review(status, content, uid))


class CreateUser(SteadyUser):
    """Creates objects at an API server, which calls the webhooks that are registered there."""

    persist: ClassVar[bool]
    created: ClassVar[list[str]] = []
    """Paths of the objects that were stored."""

    def send(self, turn: Create) -> None:
        """Create an object, by default without storing it."""
        path = turn.path if self.persist else f"{turn.path}?dryRun=All"
        with self.client.post(path, data=turn.body, name=turn.name, catch_response=True) as answer:
            status, content, problem = _read(answer)
            _count(answer, Outcome(problem) if problem else of_create(status, content, turn.prefix))
        if self.persist and status == 201:
            self.created.append(f"{turn.path}/{orjson.loads(content)['metadata']['name']}")


def _read(answer: ResponseContextManager) -> tuple[int, bytes, str]:
    """Return status and body of *answer*, and what went wrong on the way, if anything did."""
    error = answer.request_meta["exception"]
    if answer.status_code == 0:
        return 0, b"", f"no answer: {error!r}"
    try:
        return answer.status_code, answer.content or b"", ""
    except FAILURE_EXCEPTIONS as failure:
        return 0, b"", f"half an answer: {failure!r}"


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
    environment.stop_timeout = environment.stop_timeout or LAST_ANSWERS_S
    if options.stop_after:
        listener = _stop_after(environment, options.stop_after)
        events.request.add_listener(listener)  # type: ignore[no-untyped-call]


def _prepare(options: Namespace, target: Target) -> type[FastHttpUser]:
    """Return the class of users that *options* ask for, with what it will send."""
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
        # All but the first find it stopping already.
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
    """Delete what was stored."""
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
    """Set the exit status; a worker's says nothing, for the master has the sums."""
    if isinstance(environment.runner, WorkerRunner):
        return
    if isinstance(environment.runner, LocalRunner):
        # Not stopped yet if a signal ends the run.
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
