"""Images, as their Dockerfiles describe them: a container's root, its program and its environment.

The files of every image are those of this checkout and its virtual environment. Tags stand for versions.
The program of an engine's worker is the one that was built in its folder.
Two of them are special: ``:absent`` does not exist, and the program of ``:broken`` ends with an error.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kit import ROOT
from tests.languages import toolchains

if TYPE_CHECKING:
    from collections.abc import Iterable

ENGINES: Final = {f"{name}-worker": name for name in ("gatekeeper", "kyverno")}
"""The programs of ``tests.languages`` that ``engine.Dockerfile`` builds, by the name of the image."""
DOCKERFILES: Final = {
    "admission-gateway": "Dockerfile",
    "sample-policies": "worker.Dockerfile",
    "tools": "",
    **dict.fromkeys(ENGINES, "engine.Dockerfile"),
}
"""Files of images by the last part of their names. The image ``tools`` has the programs of this machine."""
PREFIXES: Final = ("/opt/admission-gateway", "/opt/worker")
"""Where the images have their virtual environments."""
HOST_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin"
_INSTRUCTION: Final = re.compile(r"^(FROM|ENV|ENTRYPOINT|CMD|USER|WORKDIR)\s+(.*)$", re.MULTILINE)


class NoImage(Exception):
    """An image cannot be pulled; the text is the reason."""


@dataclass
class Image:
    """What a container takes from its image."""

    entrypoint: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": f"{PREFIXES[0]}/bin:{HOST_PATH}"})
    user: str = "0:0"
    folder: str = "/"


def pull(reference: str) -> Image:
    """Return the image *reference*.

    Raises:
        NoImage: there is none.
    """
    name, _, tag = reference.rpartition("/")[2].partition("@")[0].partition(":")
    if name not in DOCKERFILES or tag == "absent":
        raise NoImage(f'Back-off pulling image "{reference}": not found')
    image = Image()
    if file := DOCKERFILES[name]:
        text = (ROOT / "deploy" / file).read_text().replace("\\\n", " ")
        last_stage = text[max(found.start() for found in re.finditer(r"^FROM ", text, re.MULTILINE)) :]
        for instruction, value in _INSTRUCTION.findall(last_stage):
            _apply(image, instruction, value)
    if name in ENGINES:
        image.entrypoint = [str(ROOT / part) for part in toolchains.named(ENGINES[name]).run]
    if tag == "broken":
        image.entrypoint, image.arguments = ["/bin/sh", "-c", "echo this version is broken >&2; exit 3"], []
    return image


def _apply(image: Image, instruction: str, value: str) -> None:
    match instruction:
        case "ENV":
            for pair in shlex.split(value):
                key, _, text = pair.partition("=")
                image.environment[key] = re.sub(
                    r"\$\{?(\w+)\}?", lambda found: image.environment.get(found[1], ""), text
                )
        case "ENTRYPOINT":
            image.entrypoint, image.arguments = json.loads(value), []
        case "CMD":
            image.arguments = json.loads(value)
        case "USER":
            image.user = value.strip()
        case "WORKDIR":
            image.folder = value.strip()


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine at a path of the container."""

    source: Path
    path: str
    read_only: bool = True


_ETC: Final = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ssl")
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")


def root_script(root: Path, etc: Path, mounts: Iterable[Mount], *, read_only: bool) -> str:
    """Return a shell script that builds a container's root at *root*, in a mount namespace of its own.

    *etc*: a folder with further files of ``/etc``.
    """
    at = shlex.quote(str(root))
    lines = ["set -e", f"mount -t tmpfs -o mode=755 tmpfs {at}", f"cd {at}"]
    lines += ["mkdir -p -m 755 etc dev proc usr", "mkdir -m 1777 tmp"]
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            lines.append(f"ln -s usr/{name} {name}")
        elif Path("/", name).is_dir():
            lines.append(_bind(Mount(Path("/", name), f"/{name}")))
    lines += [f"cp -rL /etc/{name} etc/" for name in _ETC if Path("/etc", name).exists()]
    lines += [f"cp {shlex.quote(str(etc))}/* etc/", "mount -t proc proc proc"]
    lines += [_bind(Mount(Path("/dev", name), f"/dev/{name}", read_only=False)) for name in _DEVICES]
    lines += [_bind(mount) for mount in sorted(mounts, key=lambda mount: mount.path.count("/"))]
    # After the volumes: this checkout may be below /tmp.
    image = {"/usr": "/usr", **dict.fromkeys(PREFIXES, sys.prefix)}
    image |= {path: path for path in (str(ROOT), sys.base_prefix) if not path.startswith("/usr")}
    lines += [_bind(Mount(Path(source), path)) for path, source in image.items()]
    if read_only:
        lines.append(f"mount -o remount,ro {at}")
    return "\n".join(lines)


def _bind(mount: Mount) -> str:
    path, source = shlex.quote(mount.path.lstrip("/")), shlex.quote(str(mount.source))
    make = f"mkdir -p {path}" if mount.source.is_dir() else f"mkdir -p $(dirname {path}) && touch {path}"
    options = "-o ro" if mount.read_only else ""
    return f"{{ {make}; }} && mount --bind {options} {source} {path}"
