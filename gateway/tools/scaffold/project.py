"""A new project: its files from the templates, and the folder that they are written to."""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from admission_gateway_worker.text import printable
from gateway import __version__
from gateway.base.errors import GatewayError
from gateway.base.text import described, did_you_mean, one_of
from gateway.config.kinds import names
from gateway.tools.scaffold.languages import ALIASES, LANGUAGES, Language

_TEMPLATES: Final = Path(__file__).parent / "templates"
_SUFFIX: Final = ".j2"
_CLONE: Final = Path(__file__).resolve().parents[3] / "workers"
_OWN: Final = ("admission-gateway", "admission-gateway-worker")
_ENVIRONMENT: Final = Environment(  # noqa: S701 - the files are not HTML
    loader=FileSystemLoader(_TEMPLATES),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["json"] = partial(json.dumps, default=str)


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


def sdk_of_clone(language: Language) -> Path | None:
    """Return the folder of the SDK if the gateway runs from a clone of its repository; else None."""
    folder = _CLONE / language.name
    return folder if (folder / "README.md").is_file() else None


def render(language: Language, name: str, sdk: Path | None) -> dict[str, str]:
    """Return the text of every file of the project *name*, by path; *sdk* replaces the published SDK."""
    values = {
        "name": name,
        "version": __version__,
        "sdk": sdk,
        "language": language,
        "command": [word.replace("NAME", name) for word in language.command],
        "build": language.lines(name, sdk),
        "unlink": language.unlink.replace("VERSION", __version__),
    }
    files = {}
    for kind in ("common", language.name):
        for template in sorted((_TEMPLATES / kind).rglob(f"*{_SUFFIX}")):
            path = template.relative_to(_TEMPLATES / kind).as_posix().removesuffix(_SUFFIX)
            text = _ENVIRONMENT.get_template(template.relative_to(_TEMPLATES).as_posix()).render(values)
            files[path.replace("dot-", ".")] = text
    return files


def write(folder: Path, files: dict[str, str]) -> None:
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
            for path, text in files.items():
                file = staging / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            # Replaces an empty folder, and fails if something was put into it meanwhile.
            os.rename(staging, folder)  # noqa: PTH104 - Path.rename is the same
    except OSError as error:
        raise GatewayError(f"{shown} cannot be written: {error.strerror or error}") from error
