"""What holds for every import: nothing that counts is lost, and importing again changes nothing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings

from gateway.tools.importing.objects import cleaned, file_name
from gateway.tools.importing.selection import select
from gateway.tools.registration.yaml_output import to_yaml
from tests.importing.kit import CLUSTERS_OWN, configuration, configurations, entry, read, registering
from tests.kit import load_yaml

if TYPE_CHECKING:
    from gateway.config.merge.model import Config

    Json = dict[str, Any]

some = settings(max_examples=60)


def imported(documents: list[Json], *, as_resource: bool = False) -> list[str]:
    return [to_yaml(cleaned(one, as_resource=as_resource)) for one in select(documents, (), ()).imported]


def webhooks(config: Config) -> list[dict[str, Any]]:
    """Everything that counts of all webhooks, in their order."""
    return [
        {
            **{name: getattr(hook, name) for name in hook.__dataclass_fields__},
            # matchLabels have no order.
            "namespace_selector": frozenset(hook.namespace_selector.requirements),
            "object_selector": frozenset(hook.object_selector.requirements),
        }
        for hook in (*config.mutating, *config.validating)
    ]


def loaded(texts: list[str]) -> Config:
    with tempfile.TemporaryDirectory() as folder:
        return read(Path(folder), texts)


@some
@given(configurations())
def test_the_gateway_reads_what_the_cluster_had(documents: list[Json]) -> None:
    before = loaded([json.dumps(one) for one in documents])
    for as_resource in (False, True):
        after = loaded(imported(documents, as_resource=as_resource))
        assert webhooks(after) == webhooks(before)
        assert after.configurations == before.configurations


@some
@given(configurations())
def test_importing_what_was_imported_gives_the_same_bytes(documents: list[Json]) -> None:
    assert select(list(reversed(documents)), (), ()).imported == select(documents, (), ()).imported
    once = imported(documents)
    again: list[Json] = [document for text in once for document in load_yaml(text)]
    assert imported(again) == once


@some
@given(configurations())
def test_nothing_of_the_cluster_is_left(documents: list[Json]) -> None:
    for document in select(documents, (), ()).imported:
        for as_resource in (False, True):
            kept = cleaned(document, as_resource=as_resource)
            assert not set(kept["metadata"]) & set(CLUSTERS_OWN)
            assert "last-applied" not in json.dumps(kept)


@some
@given(configurations())
def test_the_registration_of_a_gateway_is_never_imported(documents: list[Json]) -> None:
    own = registering()
    assert select([own, *documents], (), ()).imported == select(documents, (), ()).imported


def test_an_old_version_keeps_its_meaning() -> None:
    old = configuration(
        "ValidatingWebhookConfiguration", "old", {"name": "a.policies.test", "rules": entry()["rules"]}
    )
    old["apiVersion"] = "admissionregistration.k8s.io/v1beta1"
    old["webhooks"][0]["clientConfig"] = {"url": "https://hooks.test/"}
    old["webhooks"][0]["sideEffects"] = "None"
    in_file, resource = loaded(imported([old])), loaded(imported([old], as_resource=True))
    assert webhooks(in_file) == webhooks(resource)
    (hook,) = in_file.validating
    assert (hook.failure_policy, hook.match_policy, hook.timeout_s) == ("Ignore", "Exact", 30)


@pytest.mark.parametrize("side_effects", ["Unknown", "Some"])
def test_old_objects_keep_their_meaning(side_effects: str) -> None:
    """The API server returns it as v1, and would not accept it as v1."""
    found = configuration("MutatingWebhookConfiguration", "old", entry())
    found["webhooks"][0]["sideEffects"] = side_effects
    for field in ("failurePolicy", "matchPolicy", "timeoutSeconds"):
        found["webhooks"][0].pop(field, None)
    written = imported([found])
    assert imported([yaml.safe_load(text) for text in written]) == written
    (hook,) = loaded(written).mutating
    assert hook.side_effects == side_effects
    assert (hook.failure_policy, hook.match_policy, hook.timeout_s) == ("Fail", "Equivalent", 10)


@pytest.mark.parametrize("name", ["../../x", "a/b", ".", "", "x" * 300, "\n"])
def test_an_unvalidated_name_stays_in_the_folder(name: str) -> None:
    file = file_name({"kind": "MutatingWebhookConfiguration", "metadata": {"name": name}})
    assert Path(file).name == file
    assert file.startswith("mutating-")
    assert len(file) < 256
    assert file.isprintable()


def test_names_that_differ_late_are_different_files() -> None:
    def of(name: str) -> str:
        return file_name({"kind": "MutatingWebhookConfiguration", "metadata": {"name": name}})

    assert of("x" * 250 + "a") != of("x" * 250 + "b")
