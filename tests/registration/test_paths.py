"""What each path of the front end selects."""

from __future__ import annotations

import gc
import weakref

import pytest

from gateway.engine.paths import KEPT, Paths, path_of
from tests.core.build import webhook
from tests.registration.kit import configured

HOOKS = [
    webhook("a.x.test", configuration="early"),
    webhook("b.x.test", configuration="early", failure_policy="Ignore"),
    webhook("a.x.test", configuration="late", failure_policy="Ignore"),
    webhook("v.x.test", configuration="early", phase="validate"),
]
EARLY_A, EARLY_B, LATE_A, VALIDATING = HOOKS


@pytest.fixture
def paths() -> Paths:
    return Paths(configured(*HOOKS))


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("/mutate", [EARLY_A, EARLY_B, LATE_A]),
        ("/validate", [VALIDATING]),
        ("/mutate.fail", [EARLY_A]),
        ("/mutate.ignore", [EARLY_B, LATE_A]),
        ("/validate.ignore", []),
        ("/mutate/early", [EARLY_A, EARLY_B]),
        ("/mutate/late", [LATE_A]),
        ("/mutate.fail/early", [EARLY_A]),
        ("/mutate.fail/late", []),
        ("/validate.fail/early", [VALIDATING]),
        ("/mutate.only/early/a.x.test", [EARLY_A]),
        ("/mutate.only/late/a.x.test/early/b.x.test", [EARLY_B, LATE_A]),
        ("/mutate.only/late/a.x.test/gone/b.x.test", [LATE_A]),
        ("/mutate.ignore.only/late/a.x.test", [LATE_A]),
        # There, with another failurePolicy than it was registered with.
        ("/mutate.fail.only/late/a.x.test", []),
        ("/mutate.except/early/a.x.test", [EARLY_B, LATE_A]),
        ("/mutate.except/early/a.x.test/late/a.x.test/early/b.x.test", []),
        ("/mutate.except/gone/b.x.test", [EARLY_A, EARLY_B, LATE_A]),
        ("/mutate.ignore.except/early/b.x.test", [LATE_A]),
        ("/validate.except/late/a.x.test", [VALIDATING]),
        ("/mutate.versions/any", [EARLY_A, EARLY_B, LATE_A]),
        ("/mutate.ignore.versions/any", [EARLY_B, LATE_A]),
        ("/validate.fail.versions/any", [VALIDATING]),
        ("/validate.ignore.versions/any", []),
        ("/mutate.versions.1/any/f/0", [EARLY_A, EARLY_B]),
        ("/mutate.versions.2/any/f/0", [LATE_A]),
        ("/mutate.versions.1/any/early/b.x.test/late/0", [EARLY_A]),
        ("/mutate.versions.2/any/early/b.x.test/late/0", [EARLY_B]),
        ("/mutate.versions.3/any/early/b.x.test/late/0", [LATE_A]),
        ("/mutate.fail.versions.2/any/early/b.x.test/late/0", []),
        # Where a webhook is gone, those of its configuration may have been before or after it.
        ("/mutate.versions.1/any/early/gone.x.test", [EARLY_A, EARLY_B]),
        ("/mutate.versions.2/any/early/gone.x.test", [EARLY_A, EARLY_B, LATE_A]),
        ("/mutate.versions.1/any/early/b.x.test/early/gone.x.test", [EARLY_A]),
        ("/mutate.versions.2/any/early/b.x.test/early/gone.x.test", [EARLY_B]),
        ("/mutate.versions.3/any/early/b.x.test/early/gone.x.test", [EARLY_B, LATE_A]),
        ("/mutate.versions.1/any/early/gone.x.test/early/b.x.test", [EARLY_A]),
        ("/mutate.versions.2/any/early/gone.x.test/early/b.x.test", [EARLY_A]),
        ("/mutate.versions.3/any/early/gone.x.test/early/b.x.test", [EARLY_B, LATE_A]),
    ],
)
def test_a_path_selects_in_the_order_of_the_configuration(
    paths: Paths, path: str, selected: list[object]
) -> None:
    found = paths.get(path)
    assert found is not None
    assert list(found.webhooks) == selected
    assert found.phase == path[1:].partition("/")[0].partition(".")[0]
    assert paths[path] is found
    assert paths.get(path) is found


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "mutate",
        "/mutate/",
        "/mutate/gone",
        "/validate/late",
        "/mutate.other",
        "/mutate.only",
        "/mutate.only/",
        "/mutate.only/early",
        "/mutate.only/gone/a.x.test",
        "/mutate.only/early/v.x.test",
        "/validate.only/late/a.x.test",
        "/mutate.only/early/a.x.test/late",
        "/mutate.only/early/a.x.test/",
        "mutate.only/early/a.x.test",
        "xmutate.only/early/a.x.test",
        "/mutate.except",
        "/mutate.except/early",
        "/mutate.except/early/a.x.test/late",
        "/mutate.only.fail/early/a.x.test",
        "/mutate/early/a.x.test",
        "/mutate.versions",
        "/mutate.versions/",
        "/mutate.versions/v1",
        "/mutate.versions/any/",
        "/mutate.versions/any/early",
        "/mutate.versions/any/early/0",
        "/mutate.versions.1/any",
        "/mutate.versions.0/any/early/0",
        "/mutate.versions.01/any/early/0",
        "/mutate.versions.3/any/early/0",
        "/mutate.versions.x/any/early/0",
        "/mutate.only.versions/any",
        "mutate.versions/any",
    ],
)
def test_other_paths_select_nothing(paths: Paths, path: str) -> None:
    assert paths.get(path) is None
    with pytest.raises(KeyError):
        paths[path]


def test_paths_that_select_the_same_share_one_index(paths: Paths) -> None:
    only = paths["/mutate.only/early/b.x.test/late/a.x.test"]
    for spelling in (
        "/mutate.only/late/a.x.test/early/b.x.test",
        "/mutate.only/late/a.x.test/early/b.x.test/late/a.x.test/gone/gone",
        "/mutate.except/early/a.x.test",
        "/mutate.ignore",
        "/mutate.ignore.versions/any",
    ):
        assert paths[spelling] is only


def test_paths_made_up_by_a_client_are_forgotten_again(paths: Paths) -> None:
    made = [f"/mutate.only/early/a.x.test/gone/x{number}" for number in range(3 * KEPT)]
    found = {id(paths[path]) for path in made}
    assert len(found) == 1, "another spelling is no other selection"
    assert len(paths._chosen) == KEPT
    assert list(paths._chosen) == made[-KEPT:]


def test_an_unused_selection_is_freed() -> None:
    hooks = [webhook(f"h{number}.x.test") for number in range(KEPT + 2)]
    paths = Paths(configured(*hooks))
    first = weakref.ref(paths["/mutate.only/policies/h0.x.test"])
    for hook in hooks[1:]:
        paths[path_of("mutate", None, "only", [hook])]
        assert paths["/mutate.only/policies/h1.x.test"].webhooks == (hooks[1],), "stays while it is used"
    gc.collect()
    assert first() is None
    assert paths["/mutate.only/policies/h0.x.test"].webhooks == (hooks[0],)


def test_how_many_paths_there_are(paths: Paths) -> None:
    """Per policy or none: the phase, and each of its configurations."""
    assert len(paths) == 3 * (1 + 2) + 3 * (1 + 1)


def test_a_path_is_written_as_it_is_read(paths: Paths) -> None:
    assert path_of("validate", None) == "/validate"
    assert path_of("mutate", "Fail") == "/mutate.fail"
    path = path_of("mutate", "Ignore", "only", [EARLY_B, LATE_A])
    assert path == "/mutate.ignore.only/early/b.x.test/late/a.x.test"
    assert paths[path].webhooks == (EARLY_B, LATE_A)
