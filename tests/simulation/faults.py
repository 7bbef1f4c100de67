"""The faults of simulated workers, and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.run import Simulation
    from tests.simulation.worker import Worker

GARBAGE: Final = (b"\xff\xff\xff", b"\x0a\x05no", b"\x08\x01" * 9 + b"\x0a\xff\xff\xff\xff\x0f")
"""Messages that are no VerdictBatch."""
RAW_GARBAGE: Final = (
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\0" * 40,
    b"\0\0\4\1\4\0\0\0\1\xff\xff\xff\xff",
    b"\0\0\5\0\0\0\0\0\1\1\0\0\0\0",
    b"\0\0\5\0\0\0\0\0\1\0\x7f\xff\xff\xff",
    b"\xff\xff\xff\x99\0\0\0\0\0",
)
"""Bytes that violate HTTP/2 or gRPC, or belong to another stream."""
STATUSES: Final = (0, 1, 2, 7, 8, 13, 14)
RESETS: Final = (0, 2, 7, 8, 11)


def begin_fault(worker: Worker, kind: str, lasting_s: float) -> None:
    """Begin a fault of *worker*, and schedule its end."""
    if worker.is_down:
        return
    _BEGIN[kind](worker)
    worker.stage.loop.call_later(lasting_s, _END.get(kind, lambda _: None), worker)


def end_faults(simulation: Simulation) -> None:
    """End all faults."""
    simulation.journal.note("all faults are over")
    for worker in simulation.workers.values():
        worker.slowness = 1.0
        worker.oddities = ()
        worker.is_mute = worker.refuses = False
        if worker.is_streaming != worker.spec.is_streaming:
            _other_service(worker)
        worker.restart()
        _open_window(worker)
        worker.is_healthy = True
        worker.resume()
    for name, addresses in simulation.scenario.names.items():
        simulation.network.names[name] = addresses


def _crash(worker: Worker) -> None:
    worker.crash(delivers_written=False)


def _farewell(worker: Worker) -> None:
    worker.crash(delivers_written=True)


def _drain(worker: Worker) -> None:
    worker.drain(by_goaway=False)


def _goaway(worker: Worker) -> None:
    worker.drain(by_goaway=True)


def _refuse(worker: Worker) -> None:
    worker.note("refuses connections")
    worker.refuses = True


def _stop_refusing(worker: Worker) -> None:
    worker.refuses = False


def _mute(worker: Worker) -> None:
    worker.note("resets its connections and is mute on new ones")
    worker.crash(delivers_written=False)
    worker.is_down = False
    worker.is_mute = True


def _garbage(worker: Worker) -> None:
    message = worker.stage.dice.choice(GARBAGE)
    worker.note("sends garbage")
    for stream in tuple(worker.streams):
        stream.call.send(message)


def _raw_garbage(worker: Worker) -> None:
    raw = worker.stage.dice.choice(RAW_GARBAGE)
    worker.note("writes %r", raw)
    for stream in tuple(worker.streams):
        stream.call.write(raw)


def _end(worker: Worker) -> None:
    code = worker.stage.dice.choice(STATUSES)
    worker.note("ends its streams with %s", code)
    for stream in tuple(worker.streams):
        stream.call.end(code, "it just ends")


def _reset(worker: Worker) -> None:
    code = worker.stage.dice.choice(RESETS)
    worker.note("resets its streams: error %s", code)
    for stream in tuple(worker.streams):
        stream.call.reset(code)


def _close_window(worker: Worker) -> None:
    worker.note("closes its window")
    for stream in tuple(worker.streams):
        stream.call.keeps_window_closed = True


def _open_window(worker: Worker) -> None:
    for stream in tuple(worker.streams):
        stream.call.open_window()


def _slow(worker: Worker) -> None:
    worker.note("becomes slow")
    worker.slowness = 20.0


def _stop_being_slow(worker: Worker) -> None:
    worker.slowness = 1.0


def _become_unhealthy(worker: Worker) -> None:
    worker.set_health(is_healthy=False)


def _become_healthy(worker: Worker) -> None:
    worker.set_health(is_healthy=True)


def _other_service(worker: Worker) -> None:
    worker.crash(delivers_written=True)
    worker.is_streaming = not worker.is_streaming


_BEGIN: Final = {
    "crash": _crash,
    "farewell": _farewell,
    "vanish": lambda worker: worker.vanish(),
    "stop": lambda worker: worker.stop(),
    "cut off": lambda worker: worker.cut_off(),
    "drain": _drain,
    "goaway": _goaway,
    "refuse": _refuse,
    "mute": _mute,
    "garbage": _garbage,
    "raw garbage": _raw_garbage,
    "end": _end,
    "reset": _reset,
    "window": _close_window,
    "slow": _slow,
    "unwell": _become_unhealthy,
    "other service": _other_service,
}
_END: Final = {
    "crash": lambda worker: worker.restart(),
    "farewell": lambda worker: worker.restart(),
    "vanish": lambda worker: worker.restart(),
    "other service": lambda worker: worker.restart(),
    "stop": lambda worker: worker.resume(),
    "cut off": lambda worker: worker.resume(),
    "refuse": _stop_refusing,
    "mute": lambda worker: worker.unmute(),
    "window": _open_window,
    "slow": _stop_being_slow,
    "unwell": _become_healthy,
}
