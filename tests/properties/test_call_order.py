"""Laws of the order by ``after``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.call_order import circles, in_call_order
from tests.core.build import webhook

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Webhook

NAMES = [f"{letter}.policies.test" for letter in "abcdef"]


@st.composite
def ordered(draw: st.DrawFn) -> list[Webhook]:
    """Webhooks, some of one name, that name others, themselves and webhooks that do not exist."""
    names = draw(st.lists(st.sampled_from(NAMES[:-1]), max_size=6))
    after = st.lists(st.sampled_from(NAMES), max_size=2).map(tuple)
    return [replace(webhook(name), after=draw(after)) for name in names]


def holds(found: tuple[Webhook, ...]) -> bool:
    return all(
        found.index(before) < number
        for number, hook in enumerate(found)
        for before in found
        if before.name in hook.after
    )


@given(ordered())
def test_the_order_is_a_permutation_that_holds_unless_there_is_a_circle(hooks: list[Webhook]) -> None:
    found = in_call_order(hooks)
    assert sorted(found, key=hooks.index) == hooks
    assert holds(found) or circles(hooks)
    assert in_call_order(found) == found
    for circle in circles(hooks):
        assert all(
            before.name in hook.after for hook, before in zip(circle, (*circle[1:], circle[0]), strict=True)
        )


@given(ordered())
def test_who_waits_for_nobody_keeps_the_order(hooks: list[Webhook]) -> None:
    names = {hook.name for hook in hooks}
    free = [hook for hook in hooks if names.isdisjoint(hook.after)]
    assert [hook for hook in in_call_order(hooks) if hook in free] == free
    assert in_call_order(free) == tuple(free)


@given(ordered(), st.integers(0, 5))
def test_an_order_that_holds_is_kept(hooks: list[Webhook], cut: int) -> None:
    kept: list[Webhook] = []
    for hook in hooks:
        earlier = {one.name for one in kept} - {hook.name}
        kept.append(replace(hook, after=tuple(name for name in hook.after if name in earlier)))
    names = [hook.name for hook in kept]
    unique = [hook for number, hook in enumerate(kept) if hook.name not in names[:number]][: cut + 1]
    assert in_call_order(unique) == tuple(unique)
