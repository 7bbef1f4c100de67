"""A new project: its files from the templates, and the folder that they are written to."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from admission_gateway_worker.text import printable
from gateway import __version__
from gateway.base.errors import GatewayError
from gateway.base.text import described, did_you_mean, one_of
from gateway.config.kinds import names
from gateway.tools.scaffold.languages import ALIASES, LANGUAGES, Language

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEMPLATES: Final = Path(__file__).parent / "templates"
_SUFFIX: Final = ".j2"
_CLONE: Final = Path(__file__).resolve().parents[3]
_SHARED: Final = ("LICENSE", "protos/**/*.proto")
"""What the SDKs need of the repository beside their own folders."""
_PRODUCTS: Final = {"__pycache__"}
_TESTS: Final = ("_test.go",)
_OWN: Final = ("admission-gateway", "admission-gateway-worker")
_ENVIRONMENT: Final = Environment(  # noqa: S701 - the files are not HTML
    loader=FileSystemLoader(_TEMPLATES),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["json"] = json.dumps


def language_problem(name: str) -> str | None:
    """Return why there are no templates for the language *name*, or None."""
    if name in LANGUAGES:
        return None
    meant = ALIASES.get(name.lower())
    hint = f'; did you mean "{meant}"?' if meant else did_you_mean(name, LANGUAGES)
    return f"found {described(name)}, expected {one_of(LANGUAGES)}{hint}"


def name_problem(name: str, language: Language) -> str | None:
    """Return why *name* cannot be the name of a project in *language*, or None.

    It names the folder, the program or package, the image and the WorkerPool, and is a part of the names of
    webhooks.
    """
    if message := names.dns_1035_label(name):
        return message
    if name in _OWN:
        return f"found {described(name)}, which is a name of the gateway; expected another name"
    if language.refuses(name):
        return f"found {described(name)}, which the tools of {language.title} reserve; expected another name"
    return None


def clone() -> Path | None:
    """Return the clone of the repository from which the gateway runs; None if it is installed."""
    return _CLONE if (_CLONE / "workers").is_dir() else None


def sdk_files(language: Language, repository: Path) -> dict[str, bytes]:
    """Return what a project needs of the SDK in the clone *repository*, by path below ``sdk/``.

    The paths are those of the repository, so that the SDK's own references hold.

    Raises:
        GatewayError: there is no such SDK, or it cannot be read.
    """
    shown = printable(str(repository), 200)
    if not (repository / language.sdk_folder).is_dir():
        raise GatewayError(
            f"{shown} has no {language.sdk_folder}; expected a clone of the gateway's repository"
        )
    patterns = [*_SHARED, *(f"{language.sdk_folder}/{pattern}" for pattern in language.sdk)]
    try:
        return {
            path.relative_to(repository).as_posix(): path.read_bytes()
            for pattern in patterns
            for path in sorted(repository.glob(pattern))
            if path.is_file() and not path.name.endswith(_TESTS) and _PRODUCTS.isdisjoint(path.parts)
        }
    except OSError as error:
        raise GatewayError(f"the SDK in {shown} cannot be read: {error.strerror or error}") from error


def render(language: Language, name: str, sdk: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return every file of the project *name*, by path. Without *sdk* it uses the released SDK."""
    values = {
        "name": name,
        "version": __version__,
        "sdk": f"sdk/{language.sdk_folder}" if sdk else "",
        "language": language,
        "command": [word.replace("NAME", name) for word in language.command],
        "build": language.lines(name, has_sdk=bool(sdk)),
        "unlink": language.unlink.replace("VERSION", __version__),
    }
    files = {f"sdk/{path}": content for path, content in sdk.items()}
    for kind in ("common", language.name):
        for template in sorted((_TEMPLATES / kind).rglob(f"*{_SUFFIX}")):
            path = template.relative_to(_TEMPLATES / kind).as_posix().removesuffix(_SUFFIX)
            text = _ENVIRONMENT.get_template(template.relative_to(_TEMPLATES).as_posix()).render(values)
            files[path.replace("dot-", ".")] = text.encode()
    return files


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write *files* into *folder*, which does not exist or is empty: all of them or none.

    Raises:
        GatewayError: the folder has something in it, or cannot be written.
    """
    shown = printable(str(folder), 200)
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise GatewayError(f"{shown} exists and is not a folder; expected a name that is free")
        if folder.exists() and any(folder.iterdir()):
            raise GatewayError(
                f"{shown} exists and is not empty; expected a name that is free, or an empty folder"
            )
        with tempfile.TemporaryDirectory(dir=folder.absolute().parent, prefix=".new-") as temporary:
            staging = Path(temporary, "project")
            for path, content in files.items():
                file = staging / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            # Replaces an empty folder, and fails if something was put into it meanwhile.
            os.rename(staging, folder)  # noqa: PTH104 - Path.rename is the same
    except OSError as error:
        raise GatewayError(f"{shown} cannot be written: {error.strerror or error}") from error
