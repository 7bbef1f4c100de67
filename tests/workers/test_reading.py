"""Functions that only read a Review are told from those that change or keep a part of it."""

from __future__ import annotations

import asyncio
import functools
import math
import re
from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker import Cause, Denied, PolicyServer, Review
from admission_gateway_worker.evaluation import Evaluator
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.reading import only_reads
from admission_gateway_worker.sharing import FIRST_CALLS, PERIOD, Sharing
from tests.workers.conftest import make_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission_gateway_worker.answer import Outcome

LABELS = ("a", "b")
NAME = re.compile("[a-z]+")
LIST: list[Any] = []
DICT: dict[str, Any] = {}


class Store:
    """Keeps what it is asked for."""

    kept: Any = None

    def get(self, value: Any) -> Any:
        """Return *value*."""
        self.kept = value
        return value


STORE = Store()


def _containers(review: Review) -> list[dict[str, Any]]:
    return [*(review.object["spec"].get("containers") or [])]


def loops(review: Review) -> None:
    """Read in loops, and deny."""
    for index, container in enumerate(_containers(review)):
        if not NAME.fullmatch(container["name"]) or container["image"].endswith(":latest"):
            raise Denied(f"{container['name']!r} is wrong", causes=[Cause("x", f"[{index}]")])


def comprehends(review: Review) -> None:
    """Read in comprehensions."""
    labels = review.object["metadata"].get("labels", {})
    missing = sorted(label for label in LABELS if label not in labels)
    names = {key: len(value) for key, value in labels.items()}
    if missing and any(names[key] > 3 for key in names):
        review.warn(f"labels are missing: {', '.join(missing)}")


def tries(review: Review) -> None:
    """Read what may be missing."""
    try:
        found = review.object["spec"]["hostNetwork"]
    except KeyError:
        return
    if found is True and not review.dry_run:
        raise Denied("hostNetwork")


def requires(label: str) -> Callable[[Review], None]:
    """Return a closure."""

    def require(review: Review, text: str = "is required") -> None:
        if not review.object["metadata"]["labels"].get(label):
            raise Denied(f"{label} {text}")

    return require


async def waits_for_nothing(review: Review) -> None:
    """Read in a coroutine."""
    if review.operation == "CREATE" and isinstance(review.object, dict):
        review.annotate("kind", review.kind["kind"])


@pytest.mark.parametrize("function", [loops, comprehends, tries, requires("a"), waits_for_nothing])
def test_a_function_that_only_reads_is_found(function: Any) -> None:
    assert only_reads(function)


def _sets_default(review: Review) -> None:
    review.object.setdefault("metadata", {})


def _calls_one_that_changes(review: Review) -> None:
    if _containers(review):
        _sets_default(review)


def _assigns_item(review: Review) -> None:
    review.object["x"] = 1


def _assigns_object(review: Review) -> None:
    review.object = {}


def _deletes(review: Review) -> None:
    del review.object["x"]


def _adds_in_place(review: Review) -> None:
    found = review.object["list"]
    found += [1]


def _adds_in_a_comprehension(review: Review) -> None:
    [item.pop() for item in review.object["lists"]]


def _keeps_in_a_list(review: Review) -> None:
    LIST.append(review.object)


def _keeps_in_a_dict(review: Review) -> None:
    DICT["x"] = review.object


def _keeps_globally(review: Review) -> None:
    global DICT  # noqa: PLW0603
    DICT = review.object


def _keeps_in_an_object(review: Review) -> None:
    STORE.get(review.object)


def _keeps_in_a_default(review: Review, store: Store = STORE) -> None:
    store.get(review.object)


def _keeps_in_parameters(review: Review) -> None:
    review.parameters.get(review.object)


def _imports(review: Review) -> None:
    from copy import copy

    copy(review.object)


def _gets_attribute(review: Review) -> None:
    getattr(review.object, "clear")()  # noqa: B009


def _keeps_outside() -> Callable[[Review], None]:
    found: Any = None

    def keep(review: Review) -> None:
        nonlocal found
        found = review.object

    return keep


def _keeps_in_a_closure(store: Store) -> Callable[[Review], None]:
    return lambda review: store.get(review.object) and None


def _keeps_deep_outside() -> Callable[[Review], None]:
    found: Any = None

    def keep(review: Review) -> None:
        def inner() -> None:
            nonlocal found
            found = review.object

        inner()

    return keep


def _deep(function: Any, levels: int) -> Any:
    def within(inner: Any) -> Any:
        def call(review: Review) -> None:
            inner(review)

        return call

    for _ in range(levels):
        function = within(function)
    return function


@pytest.mark.parametrize(
    "function",
    [
        *(_sets_default, _calls_one_that_changes, _assigns_item, _assigns_object, _deletes, _adds_in_place),
        *(_adds_in_a_comprehension, _keeps_in_a_list, _keeps_in_a_dict, _keeps_globally, _keeps_in_an_object),
        *(_keeps_in_a_default, _keeps_in_parameters, _imports, _gets_attribute, _keeps_outside()),
        *(_keeps_in_a_closure(STORE), _keeps_deep_outside(), _deep(tries, 2000)),
        *(STORE.get, functools.partial(loops), LIST.append, DICT),
    ],
)
def test_a_function_that_may_change_or_keep_something_is_none(function: Any) -> None:
    assert not only_reads(function)


def test_the_calls_of_a_function_that_only_reads_are_checked_at_times() -> None:
    sharing = Sharing(loops, FIRST_CALLS)
    ways = [sharing.next_way() for _ in range(FIRST_CALLS, 3 * PERIOD)]
    assert ways.count("full") == 3
    assert set(ways) == {"full", "unchecked"}


def _replaced(review: Review) -> None:
    """Is replaced by a function that changes the object."""


def _calls_what_is_replaced(review: Review) -> None:
    _replaced(review)


def test_a_function_that_changes_the_object_later_is_checked_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> dict[int, Outcome]:
        found: dict[int, Outcome] = {}
        evaluator = Evaluator()
        calls, _ = make_calls(server, evaluator, lambda number, outcome, _: found.update({number: outcome}))
        calls.accept(message, evaluator.loop.time())
        calls.go_on(math.inf)
        await evaluator.close()
        return found

    server = PolicyServer()
    server.policy("replaced")(_calls_what_is_replaced)
    server.policy("sees")(lambda review: review.warn(f"{review.object}"))
    server.policy("last")(lambda review: None)
    message = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"object":{}}')])
    for number, name in enumerate(server.policies, 1):
        message.calls.add(id=number, policy=name, timeout_millis=60_000)
    policy = server.policies["replaced"]
    policy.sharing = Sharing(policy.function, FIRST_CALLS)
    asyncio.run(run())
    monkeypatch.setitem(globals(), "_replaced", _assigns_item)
    for _ in range(PERIOD):
        asyncio.run(run())
    for _ in range(4 * PERIOD):
        assert asyncio.run(run())[2] == pb.ReviewResponse(allowed=True, warnings=["{}"])
