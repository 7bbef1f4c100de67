"""Projects of ``admission-gateway new``, with a copy of the SDK and with the SDK as it would be published."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gateway.tools.scaffold import project
from gateway.tools.scaffold.languages import LANGUAGES
from tests.kit import ROOT
from tests.languages.projects import Shell, blocks
from tests.scaffold.kit import ProjectGateway, run_suites

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.languages.projects import Published
    from tests.languages.toolchains import Language

pytestmark = pytest.mark.xdist_group("published")

NAME = "my-policies"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("has_copy", [True, False], ids=["copied", "published"])
def test_a_new_project_is_built_tested_and_served_by_the_steps_of_its_readme(
    tmp_path: Path, processes: ExitStack, language: Language, published: Published, *, has_copy: bool
) -> None:
    folder, made = tmp_path / NAME, LANGUAGES[language.name]
    project.write(folder, project.render(made, NAME, project.sdk_files(made, ROOT) if has_copy else {}))
    used = replace(published, instead={}) if has_copy else published
    for link, target in used.links.items():
        target.mkdir(parents=True, exist_ok=True)
        (folder / link).symlink_to(target)
    build, _run, _image = (
        block for block in blocks((folder / "README.md").read_text()) if block.kind == "sh"
    )
    Shell(folder, used).run(build.text)
    assert "2 cases: 2 passed" in run_suites(folder)
    gateway = ProjectGateway(folder)
    processes.callback(gateway.stop)
    gateway.decides()
    gateway.stop()
    build_stage(folder, tmp_path / "image", used)


def build_stage(project_folder: Path, root: Path, published: Published) -> None:
    """Take the steps of the Dockerfile's build stage with files, and check that it has what the image copies.

    ``/src`` is the folder *root*, and the programs are those of this machine. Python's has only one stage.
    """
    root.mkdir()
    for link, target in published.links.items():
        (root / link).symlink_to(target)
    first, _, final = (project_folder / "Dockerfile").read_text().partition("\n\nFROM ")
    for instruction, rest in re.findall(r"^(COPY|RUN) (.*)$", first, re.MULTILINE):
        if instruction == "RUN":
            Shell(root, published).run(f"{rest}\n")
            continue
        *sources, to = rest.split()
        for source in (path for pattern in sources for path in project_folder.glob(pattern)):
            if source.is_dir():
                shutil.copytree(source, root / to)
            else:
                shutil.copy(source, root / to)
    wanted = re.findall(r"^COPY --from=build /src/(\S+) ", final, re.MULTILINE)
    assert bool(wanted) == bool(final)
    assert [path for path in wanted if not (root / path).exists()] == []
