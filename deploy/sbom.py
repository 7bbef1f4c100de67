"""Software bills of materials of what is installed: CycloneDX 1.6, as JSON.

They are made from the metadata of installed distributions and from dpkg's database, for the system's files.
The same installation gives the same document.

Source: CycloneDX specification 1.6; package-url, types ``pypi``, ``deb`` and ``generic``; PEP 639.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.metadata import Distribution

_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")
_SEPARATORS = re.compile(r"[-_.]+")

Component = dict[str, Any]


def normalised(name: str) -> str:
    """Return the name of a distribution at the beginning of *name* as in PEP 503."""
    found = _NAME.match(name.strip())
    return _SEPARATORS.sub("-", found[0]).lower() if found else ""


def document(
    subject: str, distributions: Iterable[Distribution], epoch: int, others: Sequence[Component] = ()
) -> str:
    """Return the document of the distribution *subject*, which is one of *distributions*.

    *epoch* is its time in seconds. *others* are components that are not distributions of Python.
    """
    installed = {normalised(one.name): one for one in distributions}
    components = {name: _component(name, one) for name, one in sorted(installed.items())}
    root = {**components.pop(subject), "type": "application"}
    listed = [*components.values(), *others]
    purls = {name: component["bom-ref"] for name, component in {**components, subject: root}.items()}
    needs = [
        {"ref": purls[name], "dependsOn": sorted({purls[one] for one in _required(dist) if one in purls})}
        for name, dist in sorted(installed.items())
    ]
    return rendered(root, listed, needs, epoch)


def rendered(
    root: Component, components: Sequence[Component], dependencies: Sequence[dict[str, Any]], epoch: int
) -> str:
    """Return the document of *root*, which is made of *components*; *epoch* is its time in seconds."""
    content = {
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z"),
            "component": root,
        },
        "components": components,
        "dependencies": dependencies,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return json.dumps({**head, **content}, indent=2) + "\n"


def other(kind: str, name: str, version: str) -> Component:
    """Return a component of the package-url type *kind*, such as ``deb/debian``."""
    purl = f"pkg:{kind}/{name}@{version.replace('+', '%2B').replace('~', '%7E').replace(':', '%3A')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _component(name: str, distribution: Distribution) -> Component:
    return {**other("pypi", name, distribution.version), **_licences(distribution)}


def _licences(distribution: Distribution) -> dict[str, Any]:
    metadata = distribution.metadata.json
    if expression := metadata.get("license_expression"):
        return {"licenses": [{"expression": expression}]}
    classifiers = [text for text in metadata.get("classifier", ()) if text.startswith("License :: OSI")]
    names = [text.rpartition(" :: ")[2] for text in classifiers]
    text = str(metadata.get("license", ""))
    if not names and 0 < len(text) < 60:  # else it is the whole text
        names = [text]
    return {"licenses": [{"license": {"name": one}} for one in names]} if names else {}


def _required(distribution: Distribution) -> Iterable[str]:
    """Yield the names of what *distribution* requires, for any extra and platform."""
    return (normalised(requirement) for requirement in distribution.requires or ())
