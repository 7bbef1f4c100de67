"""``after``: the order of mutating webhooks across configurations, in files and custom resources."""

from __future__ import annotations

from typing import Any

from gateway.config.merge.merged import Merged, merge
from gateway.config.merge.model import Config
from tests.config.documents import load_documents, problems_of
from tests.config.test_custom import MUTATING, hook, pool, reasons, resource

POOL = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "p"},
    "spec": {"target": "workers:1"},
}


def named(letter: str, *after: str) -> dict[str, Any]:
    """The webhook *letter*, which is called after those with the letters *after*."""
    order: dict[str, Any] = {"after": [f"{one}.hooks.test" for one in after]} if after else {}
    return hook(f"{letter}.hooks.test", **order)


def configuration(name: str, *hooks: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": MUTATING,
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }


def order(config: Config) -> str:
    return "".join(one.name[0] for one in config.mutating)


def test_a_webhook_waits_for_those_of_other_configurations_and_the_others_keep_their_order() -> None:
    first = configuration("one", named("a"), named("b", "d"), named("c"))
    second = configuration("two", named("d"), named("e"))
    assert order(load_documents(POOL, first, second)) == "acdbe"
    assert order(load_documents(POOL, configuration("one", named("a"), named("b")), second)) == "abde"


def test_a_circle_in_files_is_an_error_that_names_it() -> None:
    first = configuration("one", named("a", "c"), named("b", "a"))
    found = problems_of(POOL, first, configuration("two", named("c", "b")))
    names = "a.hooks.test after c.hooks.test after b.hooks.test after a.hooks.test"
    assert found == [("webhooks[0].after", f"found a circle, expected an order: {names}")]
    assert problems_of(POOL, configuration("one", named("a", "a"))) == [
        ("webhooks[0].after", "found a circle, expected an order: a.hooks.test after a.hooks.test")
    ]


def test_an_unknown_name_is_a_warning_with_a_hint() -> None:
    config = load_documents(
        POOL, configuration("one", named("a"), hook("b.hooks.test", after=["a.hook.test"]))
    )
    assert [(one.field, one.message) for one in config.warnings] == [
        (
            "webhooks[1].after",
            'has no effect yet: there is no mutating webhook "a.hook.test"; did you mean "a.hooks.test"?',
        )
    ]


def test_only_mutating_webhooks_have_an_order() -> None:
    validating = {**configuration("v", named("a", "b")), "kind": "ValidatingWebhookConfiguration"}
    assert [field for field, _ in problems_of(POOL, validating)] == ["webhooks[0].after"]
    none = configuration("m", hook("a.hooks.test", after=[]))
    assert problems_of(POOL, none) == [("webhooks[0].after", "found 0 entries, expected 1 to 16")]


def merged(*resources: Any, before: Merged | None = None, files: Config | None = None) -> Merged:
    return merge(files or Config(), [pool(), *resources], before)


def test_custom_resources_are_ordered_with_files() -> None:
    files = load_documents(POOL, configuration("one", named("a", "c"), named("b")))
    found = merge(files, [resource(MUTATING, "z", webhooks=[])], None)
    assert order(found.config) == "ab"
    assert [one.message for one in found.config.warnings[-1:]] == [
        'has no effect yet: there is no mutating webhook "c.hooks.test"; did you mean "b.hooks.test"?'
    ]
    found = merged(resource(MUTATING, "two", webhooks=[hook("c.hooks.test", "q")]), pool("q"), files=files)
    assert order(found.config) == "bca"


def test_resources_in_a_circle_are_refused_and_their_last_versions_stay() -> None:
    one = resource(MUTATING, "one", webhooks=[named("a")])
    two = resource(MUTATING, "two", webhooks=[named("b", "a")])
    before = merged(one, two)
    assert order(before.config) == "ab"
    changed = resource(MUTATING, "one", generation=2, webhooks=[named("a", "b")])
    after = merged(changed, two, before=before)
    assert reasons(after) == {"p": "Accepted", "one": "OrderCircle", "two": "OrderCircle"}
    assert order(after.config) == "ab"
    assert not any(one.after for one in after.config.mutating if one.name == "a.hooks.test")
    assert merged(two, changed, before=before).config.mutating == after.config.mutating
    assert reasons(merged(one, two, before=after)) == {"p": "Accepted", "one": "Accepted", "two": "Accepted"}


def test_resources_that_were_never_valid_fail_by_their_failure_policy() -> None:
    circle = [
        resource(MUTATING, "one", webhooks=[named("a", "b")]),
        resource(MUTATING, "two", webhooks=[named("b", "a")]),
    ]
    found = merged(*circle)
    assert set(reasons(found).values()) == {"Accepted", "OrderCircle"}
    assert order(found.config) == "ab"
    (status,) = (one for one in found.statuses if one.resource.name == "two")
    assert "b.hooks.test after a.hooks.test" in str(status.problems[0])
