"""Writes what a program in Rust is made of, for its image: sbom.cdx.json, and licenses/NAME@VERSION.

    cargo metadata --format-version 1 --filter-platform TARGET | python3 -m deploy.cargo_sbom TARGET_FOLDER

The crates are those that the program links on the platform, not what builds or tests it. The same input and
SOURCE_DATE_EPOCH give the same files. A crate without a file that has its licence is named on standard error.

Source: CycloneDX specification 1.6; package-url, type ``cargo``; The Cargo Book, cargo metadata.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from deploy import sbom

LICENCE: Final = re.compile(r"(?i)^(licen[sc]e|copying|notice|unlicense)([-.].*)?$")


def main() -> None:
    """Write the files into the folder that the command line names."""
    target = Path(sys.argv[1])
    metadata = json.load(sys.stdin)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    (target / "sbom.cdx.json").write_text(document(metadata, epoch))
    packages = {package["id"]: package for package in metadata["packages"]}
    for name in sorted(linked(metadata)):
        package = packages[name]
        folder = Path(package["manifest_path"]).parent
        texts = [file for file in sorted(folder.iterdir()) if LICENCE.match(file.name) and file.is_file()]
        if not texts:
            sys.stderr.write(f"{package['name']}@{package['version']} has no licence in its folder\n")
            continue
        into = target / "licenses" / f"{package['name']}@{package['version']}"
        into.mkdir(parents=True)
        for file in texts:
            shutil.copyfile(file, into / file.name)


def linked(metadata: dict[str, Any]) -> dict[str, set[str]]:
    """Return the ids of the crates that the root of *metadata* links, each with what it links itself."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found: dict[str, set[str]] = {}
    waiting = [metadata["resolve"]["root"]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = {
                one["pkg"]
                for one in nodes[name]["deps"]
                if any(kind["kind"] is None for kind in one["dep_kinds"])
            }
            waiting += found[name]
    return found


def document(metadata: dict[str, Any], epoch: int) -> str:
    """Return the bill of materials of the root of *metadata*; *epoch* is its time in seconds."""
    needs = linked(metadata)
    packages = {package["id"]: package for package in metadata["packages"]}
    parts = {name: _component(packages[name]) for name in needs}
    references = {name: part["bom-ref"] for name, part in parts.items()}
    root = {**parts.pop(metadata["resolve"]["root"]), "type": "application"}
    components = sorted(parts.values(), key=lambda part: str(part["bom-ref"]))
    dependencies = [
        {"ref": references[name], "dependsOn": sorted(references[one] for one in needs[name])}
        for name in sorted(needs, key=lambda name: str(references[name]))
    ]
    return sbom.rendered(root, components, dependencies, epoch)


def _component(package: dict[str, Any]) -> sbom.Component:
    # Some crates separate licences by a slash, the form before SPDX.
    licence = (package.get("license") or "").replace("/", " OR ")
    stated = {"licenses": [{"expression": licence}]} if licence else {}
    return {**sbom.other("cargo", package["name"], package["version"]), **stated}


if __name__ == "__main__":
    main()
