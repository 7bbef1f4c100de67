"""The bake file against Dockerfiles, images of a release and documentation. To build with it needs buildx."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest

from deploy import images
from deploy.artifacts import ROOT
from gateway import __version__
from tests.docs.pages import DOCS

TEXT: Final = (ROOT / "deploy" / "docker-bake.hcl").read_text()
TARGETS: Final[dict[str, dict[str, str]]] = {
    name: dict(re.findall(r"^  (\w+) += (.+)$", body, re.MULTILINE))
    for name, body in re.findall(r'^target "([\w-]+)" \{\n(.*?)^\}$', TEXT, re.MULTILINE | re.DOTALL)
}
"""Attributes of the targets, by name; those of the first are inherited by the others."""
COMMON: Final = TARGETS.pop("image")
EACH = pytest.mark.parametrize("name", TARGETS)
PREDEFINED: Final = {"SOURCE_DATE_EPOCH"}
"""Variables that buildx passes on."""


def dockerfile(name: str) -> str:
    """Return the Dockerfile of a target."""
    return (ROOT / TARGETS[name]["dockerfile"].strip('"')).read_text()


def arguments(name: str) -> dict[str, str]:
    """Return the arguments of a target, as they are written."""
    return dict(re.findall(r"(\w+) = ([^,}\s]+)", (COMMON | TARGETS[name])["args"]))


def test_the_default_targets_are_the_images_of_a_release() -> None:
    (listed,) = re.findall(r'^group "default" \{ targets = (\[.*\]) \}$', TEXT, re.MULTILINE)
    assert json.loads(listed) == list(images.IMAGES)
    for name, (file, given) in images.IMAGES.items():
        assert json.loads(TARGETS[name]["dockerfile"]) == f"deploy/{file}"
        assert arguments(name) == {
            "REVISION": "REVISION",
            **{key: f'"{text}"' for key, text in given.items()},
        }


def test_every_dockerfile_of_an_image_has_a_target() -> None:
    built = {json.loads(target["dockerfile"]) for target in TARGETS.values()}
    assert built == {f"deploy/{file.name}" for file in (ROOT / "deploy").glob("*Dockerfile")}
    assert json.loads(COMMON["context"]) == "."


@EACH
def test_a_target_gives_its_dockerfile_the_arguments_that_it_needs(name: str) -> None:
    declared = dict(re.findall(r"^ARG (\w+)(=.*)?$", dockerfile(name), re.MULTILINE))
    required = {argument for argument, default in declared.items() if not default} - PREDEFINED
    assert required <= arguments(name).keys() <= declared.keys()
    assert TARGETS[name]["inherits"] == '["image"]'


@EACH
def test_a_target_has_name_and_version_of_its_image(name: str) -> None:
    assert TARGETS[name]["tags"] == f'["${{REGISTRY == "" ? "" : "${{REGISTRY}}/"}}{name}:${{VERSION}}"]'
    assert f'variable "VERSION" {{ default = "{__version__}" }}' in TEXT
    if worker := arguments(name).get("WORKER"):
        assert name == f"{json.loads(worker)}-worker"
        assert (ROOT / "workers" / json.loads(worker) / "go.mod").is_file()
    else:
        assert f'image.title="{name}"' in dockerfile(name)


def test_the_documentation_names_its_platforms() -> None:
    platforms = json.loads(COMMON["platforms"])
    assert " and ".join(f"`{one}`" for one in platforms) in (DOCS / "install.md").read_text()
