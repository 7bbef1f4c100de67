"""From a request of the front end to a review by the engine, and back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.observe.tracing.recording import RecordedTrace
from gateway.pure.core.answer import Origin
from gateway.pure.core.trace import passed_on, read_traceparent
from gateway.server import image_review

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.engine.paths import Paths
    from gateway.observe.tracing.tracing import Tracing
    from gateway.pure.core.answer import Answer, Review
    from gateway.pure.core.deadline import Deadline
    from gateway.pure.core.matching import Selection
    from gateway.server.serving.front_end import FrontEnd
    from gateway.server.serving.message import Cancel, Exchange


def application(
    review: Review, paths: Paths, tracing: Tracing, front_end: FrontEnd
) -> Callable[[Exchange, Selection, Deadline], Cancel]:
    """Return the function that *front_end* calls for each request.

    *review* and *paths* belong to the same configuration. *tracing* has the tracer, if there is one.
    """
    fail = front_end.router.fail
    api_group = front_end.api_group
    of_images = paths.of_image_reviews

    def answered(exchange: Exchange, answer: Answer) -> None:
        if answer.selection is of_images:
            image_review.respond(exchange, answer)
        else:
            exchange.respond(200, answer.body)

    def app(exchange: Exchange, selection: Selection, deadline: Deadline) -> Cancel:
        request = exchange.request
        # Not kept for as long as the review waits: the parsed request is kept as well.
        body, request.body = request.body, b""
        if selection is of_images:
            body = image_review.admission_review(body)
        header = request.headers.get(b"traceparent")
        traceparent = "" if header is None else read_traceparent(header)
        tracer = tracing.tracer
        trace = passed_on(traceparent) if tracer is None else tracer.trace(traceparent)
        origin = Origin(request.target, trace, api_group(request))
        rest = selection, body, deadline, partial(answered, exchange), partial(fail, exchange), origin
        if tracer is not None and isinstance(trace, RecordedTrace):
            return tracer.review(review, request.received_at, *rest)
        return review(*rest)

    return app
