"""What Artifact Hub is told about the chart. tests/release has it published and read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from deploy import artifact_hub, images, version
from deploy.artifact_hub import ChartPublisher
from deploy.chart_values import CHART
from deploy.registries import Refused
from gateway import __version__

if TYPE_CHECKING:
    from pathlib import Path

ABOUT = (CHART / "Chart.yaml").read_text()
KINDS = {"added", "changed", "deprecated", "removed", "fixed", "security"}
"""Of Artifact Hub's documentation."""
SECTION = """\
## Unreleased

### Changed

- A [page](docs/page.md#part) has "quotes": and
  a second line. `code` in another sentence.
- No e.g. of it
Group:

- In a group.

### Fixed

- `x` is y. It was z.
"""


def test_a_change_has_its_heading_and_first_sentence() -> None:
    assert list(artifact_hub.changes(SECTION)) == [
        {"kind": "changed", "description": 'A page has "quotes": and a second line.'},
        {"kind": "changed", "description": "No e.g. of it Group:"},
        {"kind": "changed", "description": "In a group."},
        {"kind": "fixed", "description": "`x` is y."},
    ]


def test_the_packed_chart_has_every_change_of_the_version_beside_what_it_had() -> None:
    section = version.changes(__version__)
    before, after = yaml.safe_load(ABOUT), yaml.safe_load(artifact_hub.annotated(ABOUT, section, ""))
    changes = yaml.safe_load(after["annotations"].pop("artifacthub.io/changes"))
    assert after == before
    assert len(changes) == section.count("\n- ")
    assert {change["kind"] for change in changes} <= KINDS
    assert all(change["description"].strip() for change in changes)


def test_the_packed_chart_names_the_images_of_the_release_in_their_registry() -> None:
    about = yaml.safe_load(artifact_hub.annotated(ABOUT, SECTION, "registry.example/team"))
    named = yaml.safe_load(about["annotations"]["artifacthub.io/images"])
    assert named == [
        {"name": name, "image": f"registry.example/team/{name}:{__version__}"} for name in images.IMAGES
    ]


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ("repositoryId: x", "found repositoryId, expected repositoryID or owners or ignore"),
        ("- repositoryID", "found list, expected"),
        ("# nothing", "found NoneType, expected"),
        ("{", "while parsing"),
        (None, "No such file"),
    ],
)
def test_a_file_that_says_nothing_to_artifact_hub_is_refused(
    content: str | None, refusal: str, tmp_path: Path
) -> None:
    file = tmp_path / "artifacthub-repo.yml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(Refused, match=f"(?s)^{file}: .*{refusal}"):
        ChartPublisher(file, "registry.example").there()
