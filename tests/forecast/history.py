"""Makes the tables of ``gateway/tools/forecast``: what each version of Kubernetes serves and knows.

    python -m tests.forecast.history

They are read from modules of k8s.io/api: the functions that say when a version of a kind is introduced,
deprecated and removed, and the objects with all fields that the module keeps of each release.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, UnknownKindError
from gateway.pure.workloads.defaults import kind_of
from gateway.tools.forecast.fields import FIELDS_FILE, children_of
from gateway.tools.forecast.kinds import KINDS_FILE
from tests.e2e.golang import ROOT, go

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEWEST: Final = "v0.37.1"
_LIFECYCLES: Final = (
    *(("k8s.io/api", version, "*/*") for version in ("v0.26.5", "v0.31.0", "v0.34.0", "v0.36.3", _NEWEST)),
    ("k8s.io/apiextensions-apiserver", _NEWEST, "pkg/apis/*/*"),
    ("k8s.io/kube-aggregator", _NEWEST, "pkg/apis/*/*"),
)
"""Kinds that are gone for long are in old modules only. The newest that has a kind counts."""
_OBJECTS: Final = {33: "v1.33.0", 34: "v1.34.0", 35: "v1.35.0", 36: "HEAD"}
"""Folders of objects by minor version, in the module below. Those of 1.37 are the schemas'."""
_WITH_OBJECTS: Final = "v0.36.3"
_NUMBER: Final = re.compile(
    r"func \(in \*(\w+)\) APILifecycle(Introduced|Deprecated|Removed)\(\) \(major, minor int\) "
    r"\{\n\treturn 1, (\d+)"
)
_REPLACEMENT: Final = re.compile(
    r"func \(in \*(\w+)\) APILifecycleReplacement\(\) schema.GroupVersionKind "
    r'\{\n\treturn schema.GroupVersionKind\{Group: "([^"]*)", Version: "([^"]*)", Kind: "([^"]*)"'
)
_GROUP: Final = re.compile(r'GroupName\s*=\s*"([^"]*)"')


class _Key(NamedTuple):
    api_version: str
    kind: str


def kinds() -> str:
    """Return the table of kinds.

    Raises:
        CannotBuild: there is no Go toolchain, or it cannot download a module.
    """
    found: dict[_Key, dict[str, str]] = {}
    for module, version, folders in _LIFECYCLES:
        for file in sorted(_folder(module, version).glob(f"{folders}/zz_generated.prerelease-lifecycle.go")):
            group = _GROUP.search((file.parent / "register.go").read_text())
            assert group is not None, file
            prefix = f"{group[1]}/" if group[1] else ""
            of_file: dict[_Key, dict[str, str]] = {}
            text = file.read_text()
            for kind, what, minor in _NUMBER.findall(text):
                of_file.setdefault(_Key(f"{prefix}{file.parent.name}", kind), {})[what] = minor
            for kind, other, other_version, other_kind in _REPLACEMENT.findall(text):
                key = _Key(f"{prefix}{file.parent.name}", kind)
                renamed = "" if other_kind == kind else f":{other_kind}"
                of_file[key]["Replacement"] = f"{other}/{other_version}{renamed}".removeprefix("/")
            found |= of_file
    lines = []
    for key, of_key in sorted(found.items()):
        if not key.kind.endswith(("List", "Options")):
            parts = (of_key.get(name, "-") for name in ("Introduced", "Deprecated", "Removed", "Replacement"))
            lines.append(" ".join((*key, *parts)))
    return "\n".join(lines) + "\n"


def fields() -> str:
    """Return the table of fields that a version after the oldest one has added or removed.

    Raises:
        CannotBuild: there is no Go toolchain, or it cannot download a module.
    """
    known: dict[int, dict[str, set[str]]] = {}
    for minor, folder in objects_of():
        of_version = known.setdefault(minor, {})
        for file in sorted(folder.glob("*.json")):
            for name, names in _of_object(json.loads(file.read_bytes())):
                of_version.setdefault(name, set()).update(names)
    newest = known.setdefault(37, {})
    schemas, _ = built_in_schemas().definition(GroupVersionKind("", "v1", "Pod"))
    for of_version in [*known.values()]:
        for name in of_version:
            newest[name] = set(schemas[name].get("properties") or {})
    return "\n".join(sorted(_changes(known))) + "\n"


def objects_of() -> Iterator[tuple[int, Path]]:
    """Yield minor versions with the folders of their objects with all fields.

    Raises:
        CannotBuild: there is no Go toolchain, or it cannot download the module.
    """
    objects = _folder("k8s.io/api", _WITH_OBJECTS) / "testdata"
    for minor, folder in _OBJECTS.items():
        yield minor, objects / folder


def _changes(known: dict[int, dict[str, set[str]]]) -> Iterator[str]:
    for name, now in known[37].items():
        before: set[str] | None = None
        short = ".".join(name.split(".")[-3:])
        for minor, of_version in sorted(known.items()):
            names = of_version.get(name)
            if names is None:
                continue
            if before is not None:
                yield from (f"{short}.{field} +{minor}" for field in names - before)
                yield from (f"{short}.{field} -{minor}" for field in before - names)
            before = names
        del now


def _of_object(found: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield each type in *found*, an object with all fields, with the names of its fields."""
    try:
        schemas, name = built_in_schemas().definition(kind_of(found))
    except UnknownKindError:
        return
    waiting: list[tuple[str, Any]] = [(name, found)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            yield name, set(value)
            waiting += [(child, each) for child, _, each in children_of(schemas, name, value)]


def _folder(module: str, version: str) -> Path:
    return Path(json.loads(go("mod", "download", "-json", f"{module}@{version}", cwd=ROOT))["Dir"])


if __name__ == "__main__":
    KINDS_FILE.write_text(kinds())
    FIELDS_FILE.write_text(fields())
