"""The lists of objects are those of the objects themselves, whatever comes between two looks."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core.labels import EVERYTHING, Requirement, Selector
from gateway.server.kubernetes.object_lists import ObjectLists

ODD = Selector((Requirement("parity", "In", frozenset({"odd"})),))


@dataclass(frozen=True)
class One:
    key: str
    value: int = 0

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]


OBJECTS = st.builds(One, st.sampled_from(["a/x", "a/y", "b/x", "a-b/x", "/x"]), st.integers(0, 3))
PAGES = st.lists(st.lists(OBJECTS, max_size=3), max_size=3)
STEPS = st.lists(
    st.tuples(st.just("change"), OBJECTS)
    | st.tuples(st.just("delete"), OBJECTS)
    | st.tuples(st.just("list"), PAGES)
    | st.tuples(st.just("look"), st.sampled_from(["", "a", "b", "a-b", "none"])),
    max_size=20,
)


@given(steps=STEPS, looks_within_lists=st.booleans())
def test_lists_are_those_of_the_objects(
    steps: list[tuple[str, One | list[list[One]] | str]], looks_within_lists: bool
) -> None:
    objects: dict[str, One] = {}
    lists: ObjectLists[One] = ObjectLists(lambda: objects)

    def look(namespace: str) -> None:
        expected = [objects[key] for key in sorted(objects) if namespace in ("", objects[key].namespace)]
        assert list(lists.select(namespace, EVERYTHING, lambda _: False)) == expected
        odd = [one for one in expected if one.value % 2]
        assert list(lists.select(namespace, ODD, lambda one: one.value % 2 == 1)) == odd
        assert lists.count(namespace) == len(expected)

    for what, given_ in steps:
        if isinstance(given_, str):
            look(given_)
        elif isinstance(given_, One):
            before = objects.get(given_.key)
            after = None if what == "delete" else given_
            if after is None:
                objects.pop(given_.key, None)
            else:
                objects[given_.key] = after
            lists.change(before, after)
        else:
            lists.begin()
            for page in given_:
                lists.add(page)
                if looks_within_lists:
                    look("a")
            objects.clear()
            objects.update((one.key, one) for page in given_ for one in page)
            lists.complete()
    for namespace in ("", "a", "b", "a-b"):
        look(namespace)
