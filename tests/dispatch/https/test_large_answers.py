"""The slots of large answers."""

from __future__ import annotations

from gateway.engine.dispatch.https.large_answers import MAX_LARGE, LargeAnswerSlot, LargeAnswerSlots


def test_the_call_that_has_waited_longest_gets_the_slot_that_is_released() -> None:
    slots, granted = LargeAnswerSlots(), list[int]()
    calls = [LargeAnswerSlot(slots) for _ in range(MAX_LARGE + 3)]
    for number, call in enumerate(calls):
        assert call.try_acquire(lambda number=number: granted.append(number)) is (number < MAX_LARGE)  # type: ignore[misc]
    # It has one already.
    assert calls[0].try_acquire(lambda: granted.append(-1))
    # It no longer waits.
    calls[MAX_LARGE].release()
    calls[0].release()
    calls[0].release()
    assert granted == [MAX_LARGE + 1]
    calls[1].release()
    assert granted == [MAX_LARGE + 1, MAX_LARGE + 2]
    for call in calls:
        assert not slots.is_empty
        call.release()
    assert slots.is_empty
