"""Strongly connected components of a directed graph.

Source: R. Tarjan, Depth-first search and linear graph algorithms, SIAM J. Comput. 1 (1972).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

V = TypeVar("V", bound="Hashable")


def component_of(start: V, edges: Mapping[V, Collection[V]]) -> frozenset[V]:
    """Return what *start* needs and what needs it: empty if it does not need itself, over any others.

    The time is linear in the number of *edges*, of which each vertex has those to what it needs. There is no
    recursion: a chain may be longer than Python's stack.
    """
    index: dict[V, int] = {start: 0}
    low: dict[V, int] = {start: 0}
    stack, is_open = [start], {start}
    path = [(start, iter(edges.get(start, ())))]
    while path:
        vertex, rest = path[-1]
        for other in rest:
            if other not in index:
                index[other] = low[other] = len(index)
                stack.append(other)
                is_open.add(other)
                path.append((other, iter(edges.get(other, ()))))
                break
            if other in is_open:
                low[vertex] = min(low[vertex], index[other])
        else:
            path.pop()
            if path:
                parent = path[-1][0]
                low[parent] = min(low[parent], low[vertex])
            if low[vertex] == index[vertex]:
                component = set()
                while vertex not in component:
                    component.add(stack.pop())
                is_open -= component
                if start in component:
                    is_alone = len(component) == 1 and start not in edges.get(start, ())
                    return frozenset() if is_alone else frozenset(component)
    raise AssertionError("the start is in a component")
