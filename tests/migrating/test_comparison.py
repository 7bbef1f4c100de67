"""What counts as another answer, and how answers that differ are grouped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.migrating.comparison import differences
from gateway.tools.migrating.proof import MAX_GROUPS, Proof
from gateway.tools.replay.cases import Case, Found
from gateway.tools.replay.results import Result, WebhookResult
from gateway.tools.replay.run import MAX_FAILING
from tests.migrating.kit import pod

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Phase

KEY = ("validate", "engine", "all")


def result(*denials: str, code: int = 403, warnings: tuple[str, ...] = (), object: Any = None) -> Result:  # noqa: A002
    """An answer: denied by a webhook for each of *denials*, or allowed with this object in the end."""
    webhooks = tuple(WebhookResult(KEY, "Denied", message, number=n) for n, message in enumerate(denials))
    return Result(
        not denials,
        code if denials else 200,
        "\n".join(denials),
        warnings,
        webhooks,
        object is not None,
        lambda: object,
        dict,
    )


def failed(message: str = "refused") -> Result:
    """An answer without which nothing is known."""
    webhooks = (WebhookResult(KEY, "FailedOpen", message),)
    return replace(result(), webhooks=webhooks)


def case(number: int, name: str = "") -> Case:
    phase: Phase = "validate"
    request = pod(number)
    if name:
        request["name"] = request["object"]["metadata"]["name"] = name
    return Case(request, "/validate", phase, None, None, is_redacted=True)


A, B = "[a] first", "[b] second"


@pytest.mark.parametrize(
    ("old", "new", "kinds", "exact"),
    [
        (result(), result(), [], []),
        (result(A), result(A), [], []),
        (result(A, B), result(B, A), [], ["message"]),
        (result(f"{A}\n{B}"), result(B, A), [], ["message"]),
        (
            result("Policy a failed: x; Policy b failed: y"),
            result("Policy b failed: y\nPolicy a failed: x"),
            [],
            None,
        ),
        (result(f"\n\n  {A}\n"), result(A, A), [], ["message"]),
        (result(A), result(A, B), ["message"], ["message"]),
        (result(A), result(), ["decision"], ["decision"]),
        (result(), result(A), ["decision"], ["decision"]),
        (result(A, code=400), result(A), ["code"], ["code"]),
        (result(A, code=400), result(B), ["code", "message"], ["code", "message"]),
        (result(warnings=("a", "b")), result(warnings=("b", "a")), [], ["warnings"]),
        (result(warnings=("a",)), result(), ["warnings"], ["warnings"]),
        (result(A, warnings=("a",)), result(warnings=("a",)), ["decision"], None),
        (result(object={"a": 1, "b": 2}), result(object={"b": 2, "a": 1}), [], []),
        (result(object={"a": 1}), result(object={"a": 2}), ["object"], ["object"]),
        (result(object={"a": 1}), result(A, object={"a": 2}), ["decision"], None),
    ],
)
def test_what_differs(old: Result, new: Result, kinds: list[str], exact: list[str] | None) -> None:
    assert [one.kind for one in differences(old, new, is_exact=False)] == kinds
    if exact is not None:
        assert [one.kind for one in differences(old, new, is_exact=True)] == exact


def test_an_object_differs_at_paths_without_positions() -> None:
    old = result(object={"containers": [{"image": "a"}, {"image": "b"}]})
    new = result(object={"containers": [{"image": "c"}, {"image": "d"}]})
    (found,) = differences(old, new, is_exact=False)
    assert found.new == ("/containers/*/image",)


def test_names_and_numbers_of_objects_make_no_groups_and_words_do() -> None:
    proof = Proof(is_exact=False)
    for number, name in enumerate(("a", "web", "shop-web", "be")):
        proof.add(case(number, name), result(f'[owners] label of "{name}" is {number}'), result())
    assert [one.count for one in proof.ordered()] == [4]
    proof.add(case(9), result("[costs] another text"), result())
    assert [one.count for one in proof.ordered()] == [4, 1]
    assert proof.status(Found(), []) == 1


def test_ten_thousand_equal_differences_are_one_example_and_others_are_counted() -> None:
    proof = Proof(is_exact=False)
    for number in range(10_000):
        proof.add(case(number), result(A), result())
    (group,) = proof.ordered()
    assert (group.count, group.case.request["uid"]) == (10_000, "u-0")
    for number in range(MAX_GROUPS + 5):
        proof.add(case(number), result("x" * (number + 1)), result())
    assert len(proof.groups) == MAX_GROUPS
    found = proof.document(Found(), {}, [])
    assert (found["furtherDifferences"], found["different"]) == (6, 10_000 + MAX_GROUPS + 5)


def test_calls_that_fail_again_and_again_end_it() -> None:
    proof = Proof(is_exact=False)
    for number in range(MAX_FAILING - 1):
        proof.add(case(number), failed(), result())
    proof.add(case(0), result(), result())
    assert [proof.stopped] == [""]
    for number in range(MAX_FAILING):
        proof.add(case(number), result(), failed("unix:/tmp/x.sock: gone"))
    assert proof.stopped
    assert proof.status(Found(), []) == 3
    assert dict(proof.failures) == {
        "old: engine/all: refused": MAX_FAILING - 1,
        "new: engine/all: its socket: gone": MAX_FAILING,
    }


@pytest.mark.parametrize(
    ("added", "left_out", "unanswered", "status"),
    [
        ([], [], 0, 3),
        ([(result(), result())], [], 0, 0),
        ([(result(), result())], ["old: validate a/b"], 0, 3),
        ([(result(), result())], [], 1, 3),
        ([(result(), result()), (failed(), result())], [], 0, 3),
        ([(result(), result(A)), (failed(), result())], [], 1, 1),
    ],
)
def test_the_status(
    added: list[tuple[Result, Result]], left_out: list[str], unanswered: int, status: int
) -> None:
    proof, found = Proof(is_exact=False), Found(unanswered=unanswered)
    for number, (old, new) in enumerate(added):
        proof.add(case(number), old, new)
    assert proof.status(found, left_out) == status


answers = st.one_of(
    st.lists(st.sampled_from([A, B, "", f"{A}\n{B}"]), max_size=3).map(lambda texts: result(*texts)),
    st.lists(st.sampled_from(["v", "w"]), unique=True).map(lambda texts: result(warnings=tuple(texts))),
    st.sampled_from([None, {}, {"a": 1}, {"a": [1, {"b": 2}]}]).map(lambda value: result(object=value)),
    st.just(failed()),
)


@given(st.lists(st.tuples(answers, answers, st.booleans()), max_size=30))
def test_every_review_is_counted_once(pairs: list[tuple[Result, Result, bool]]) -> None:
    for is_exact in (False, True):
        proof = Proof(is_exact)
        for number, (old, new, is_same) in enumerate(pairs):
            proof.add(case(number), old, old if is_same else new)
        assert proof.compared == len(pairs)
        assert proof.equal + proof.different + proof.undecided == len(pairs)
        assert sum(one.count for one in proof.ordered()) + proof.others == proof.different
        assert proof.status(Found(), []) == (
            1 if proof.different else 3 if proof.undecided or not pairs else 0
        )


@given(answers, answers)
def test_what_is_equal_in_full_is_equal_and_the_order_of_the_sides_does_not_matter(
    old: Result, new: Result
) -> None:
    assert not differences(old, old, is_exact=True)
    loose = [one.kind for one in differences(old, new, is_exact=False)]
    if not differences(old, new, is_exact=True):
        assert not loose
    assert loose == [one.kind for one in differences(new, old, is_exact=False)]
