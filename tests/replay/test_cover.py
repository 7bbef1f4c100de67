"""The smallest set of exceptions: which candidates are chosen, and what always holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.replay.cover import Draft, cover
from gateway.tools.replay.denials import Facts, Group, Signature

if TYPE_CHECKING:
    from collections.abc import Iterable

NEW = Signature((), ("p",), is_newly_denied=True)
OLD = Signature((), ("p",), is_newly_denied=False)
FINE = Signature(("p",), (), is_newly_denied=False)
NGINX = ("docker.io/library/nginx",)
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"

Groups = dict[tuple[Facts, Signature], Group]


def facts(owner: str = "web", user: str = "ann", kind: str = "Pod", images: tuple[str, ...] = NGINX) -> Facts:
    return Facts("shop", kind, user, f"Pod/{owner}" if owner else "", images)


def groups(
    denied: Iterable[Facts], allowed: Iterable[Facts] = (), before: Iterable[Facts] = (), by: Signature = NEW
) -> Groups:
    rows = [
        *((one, by) for one in denied),
        *((one, FINE) for one in allowed),
        *((one, OLD) for one in before),
    ]
    return {row: Group(1) for row in rows}


def drafts(found: Groups) -> list[Draft]:
    result = cover(found)
    assert not result.problems
    return result.drafts


def test_owners_come_first_and_share_an_exception() -> None:
    (one,) = drafts(groups([facts("web"), facts("api", images=("r.example/api",))]))
    assert one.owners == {"Pod/web", "Pod/api"}
    assert one.users == {"ann"}
    assert one.kinds == {"Pod"}
    assert one.images == {*NGINX, "r.example/api"}


def test_owners_are_not_united_if_that_covers_an_allowed_request() -> None:
    denied = [facts("web"), facts("api", images=("r.example/api",))]
    found = drafts(groups(denied, [facts("web", images=("r.example/api",))]))
    assert [one.owners for one in found] == [{"Pod/api"}, {"Pod/web"}]


def test_many_owners_of_one_image_are_one_exception_by_image() -> None:
    denied = [facts(f"web{number}", CONTROLLER) for number in range(9)]
    (one,) = drafts(groups(denied))
    assert not one.owners
    assert one.users == {CONTROLLER}
    assert one.images == set(NGINX)
    (one,) = drafts(groups(denied[:8]))
    assert len(one.owners) == 8
    # An allowed Pod of this image makes it as expensive as one owner more.
    (one,) = drafts(groups(denied, [facts("fine", CONTROLLER)]))
    assert len(one.owners) == 9


def test_a_user_gets_everything_only_for_many_owners_and_never_one_of_the_system() -> None:
    images = [(f"r.example/i{number}",) for number in range(70)]
    (one,) = drafts(groups(facts(f"web{n}", images=image) for n, image in enumerate(images[:65])))
    assert not one.owners
    assert one.users == {"ann"}
    found = drafts(groups(facts(f"web{n}", CONTROLLER, images=image) for n, image in enumerate(images)))
    assert [len(one.owners) for one in found] == [64, 6]


def test_the_same_requests_of_two_webhooks_are_one_exception() -> None:
    (one,) = drafts(groups([facts()], by=Signature((), ("p", "q"), is_newly_denied=True)))
    assert one.webhooks == {"p", "q"}


def test_requests_that_were_denied_before_are_never_covered() -> None:
    found = cover(groups([facts()], before=[facts()]))
    assert "an exception would also allow requests that were denied before" in found.problems[0]
    # The image tells them apart.
    (one,) = drafts(groups([facts()], before=[facts(images=("r.example/api",))]))
    assert one.images == set(NGINX)


def test_names_without_users_are_of_one_kind() -> None:
    named = [Facts("shop", kind, "", f"{kind}/web", ()) for kind in ("ConfigMap", "Secret")]
    assert [one.kinds for one in drafts(groups(named))] == [{"ConfigMap"}, {"Secret"}]


def test_shares_count_what_is_covered_of_all_traffic() -> None:
    found = cover(groups([facts("web")], [facts("web"), facts("api"), facts("old")]))
    assert found.shares == {"p": (2, 4)}


some = st.builds(
    facts,
    st.sampled_from(["web", "api", "web*", ""]),
    st.sampled_from(["ann", "bob", CONTROLLER, ""]),
    st.sampled_from(["Pod", "Job.batch"]),
    st.sampled_from([NGINX, ("r.example/api",), (*NGINX, "r.example/api"), ()]),
)


@given(denied=st.sets(some, max_size=8), allowed=st.sets(some, max_size=8), before=st.sets(some, max_size=3))
def test_everything_denied_is_covered_or_named_and_nothing_that_was_denied_before(
    denied: set[Facts], allowed: set[Facts], before: set[Facts]
) -> None:
    found = groups(denied, allowed, before)
    result = cover(found)
    covered = {one for one in denied if any(draft.covers(one) for draft in result.drafts)}
    assert len(result.problems) == len(denied - covered)
    assert not any(draft.covers(one) for draft in result.drafts for one in before)
    assert len(result.drafts) <= len(denied)
    assert all(draft.users or any(not one.user for one in denied) for draft in result.drafts)
    again = cover(dict(sorted(found.items(), reverse=True)))
    assert (again.drafts, again.problems) == (result.drafts, result.problems)
