"""Documents for workers in as many ConfigMaps as hold them."""

from __future__ import annotations

import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.migrating.config_maps import FILLED_BYTES, HOLDS_BYTES, parts, size_of
from tests.importing.test_other_engines import put
from tests.kit import call_command
from tests.migrating.test_migrate import KYVERNO, commands, migrate

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
SIZES = st.sampled_from([1, 400_000, FILLED_BYTES // 2, FILLED_BYTES, HOLDS_BYTES, HOLDS_BYTES + 1])


@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), SIZES, max_size=8))
def test_each_file_is_in_one_config_map_that_holds_it_or_is_named(sizes: dict[str, int]) -> None:
    texts = {name: "x" * size for name, size in sizes.items()}
    groups, too_large = parts(texts)
    assert [name for group in groups for name in group] == sorted(texts.keys() - too_large.keys())
    assert all(0 < sum(map(size_of, group.values())) <= HOLDS_BYTES for group in groups)
    assert {name for name, size in sizes.items() if size > HOLDS_BYTES} == too_large.keys()
    assert parts(dict(sorted(texts.items(), reverse=True))) == (groups, too_large)
    # A file is in a further one only if that before has no room.
    for before, after in pairwise(groups):
        assert sum(map(size_of, [*before.values(), next(iter(after.values()))])) > FILLED_BYTES


def test_the_size_is_that_of_bytes() -> None:
    assert size_of("\u00e4\U0001f600") == 6


def pattern(name: str, size: int) -> Json:
    """A ClusterPolicy with a message of *size* characters."""
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    labels = {"metadata": {"labels": {"team": "?*"}}}
    rule = {"name": "label", "match": match, "validate": {"message": "m" * size, "pattern": labels}}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [rule]},
    }


def test_documents_of_more_than_a_config_map_are_in_several_that_one_folder_shows(tmp_path: Path) -> None:
    validating = {**KYVERNO[0], "webhooks": KYVERNO[0]["webhooks"][:1]}
    put(tmp_path / "in" / "all.yaml", *(pattern(name, 400_000) for name in ("c", "b", "a")), validating)
    out = tmp_path / "out"
    report = migrate(tmp_path / "in", "--output", out, status=1)
    made = [line for line in commands(report) if "configmap" in line]
    assert made == [
        shlex.split(
            "kubectl --namespace admission-gateway create configmap "
            f"migration-kyverno-{number} --from-file {out}/documents/kyverno/{number}"
        )
        for number in (1, 2)
    ]
    assert [sorted(one.name for one in (out / f"documents/kyverno/{n}").iterdir()) for n in (1, 2)] == [
        ["clusterpolicy-a.yaml", "clusterpolicy-b.yaml"],
        ["clusterpolicy-c.yaml"],
    ]
    worker = yaml.safe_load((out / "values-candidates.yaml").read_text())["workers"]["kyverno"]
    assert worker["volumes"] == [
        {
            "name": "policies",
            "projected": {
                "sources": [{"configMap": {"name": f"migration-kyverno-{number}"}} for number in (1, 2)]
            },
        }
    ]
    assert worker["volumeMounts"][0]["mountPath"] == "/policies"


def test_what_no_config_map_holds_is_named_with_what_to_do(tmp_path: Path) -> None:
    validating = {**KYVERNO[0], "webhooks": KYVERNO[0]["webhooks"][:1]}
    put(tmp_path / "in" / "all.yaml", pattern("small", 1), pattern("large", HOLDS_BYTES), validating)
    out = tmp_path / "out"
    done = call_command("migrate", tmp_path / "in", "--output", out)
    assert done.returncode == 1
    place = "documents/kyverno/too-large/clusterpolicy-large.yaml"
    assert (out / place).is_file()
    size = f"{(out / place).stat().st_size:,}"
    assert f"error: {place}: has {size} bytes, and a ConfigMap holds 1,048,576: shorten" in done.stderr
    assert "below /policies, in workers.kyverno.volumes of values-candidates.yaml" in done.stderr
    assert "error: values.yaml: extraDocuments: has documents of" in done.stderr
    assert "apply them to the cluster, and plan from it" in done.stderr
    assert [one.name for one in (out / "documents/kyverno").iterdir() if one.is_file()] == [
        "clusterpolicy-small.yaml"
    ]
