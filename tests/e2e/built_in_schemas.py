"""Makes ``gateway/pure/openapi/built-in.json.gz``: the schemas of Kubernetes' own kinds in the newest
release.

    python -m tests.e2e.built_in_schemas

They are read from the OpenAPI v3 documents in the Go module of the release that the end-to-end tests use.
Only what merging and the types of expressions depend on is kept, of the kinds that are objects.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.openapi.documents import FILE, KINDS, reduced
from tests.e2e.golang import ROOT, go

if TYPE_CHECKING:
    from collections.abc import Iterator

RELEASE: Final = ROOT / "tests" / "e2e" / "kubernetes" / "1.37"


def documents() -> Iterator[dict[str, Any]]:
    """Yield the OpenAPI v3 documents of the release, one for each version of a group.

    Raises:
        CannotBuild: there is no Go toolchain, or it cannot download the module.
    """
    go("mod", "download", "k8s.io/kubernetes", cwd=RELEASE)
    module = Path(go("list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes", cwd=RELEASE))
    for file in sorted((module / "api" / "openapi-spec" / "v3").glob("api*__*_openapi.json")):
        yield json.loads(file.read_bytes())


def built_in() -> dict[str, Any]:
    """Return one document with the schemas of all *documents*."""
    every: dict[str, Any] = {}
    for document in documents():
        every |= reduced(document)["components"]["schemas"]
    found: dict[str, Any] = {}
    wanted = [name for name, schema in every.items() if _is_object(name, schema)]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = every[name]
            wanted.extend(_references(every[name]))
    return {"components": {"schemas": dict(sorted(found.items()))}}


def _is_object(name: str, schema: dict[str, Any]) -> bool:
    """Tell whether *schema* is of one kind, and not a list of its objects."""
    return len(schema.get(KINDS, ())) == 1 and not name.endswith("List")


def _references(schema: Any) -> Iterator[str]:
    match schema:
        case {"$ref": str() as path}:
            yield path.rpartition("/")[2]
        case dict():
            for each in schema.values():
                yield from _references(each)
        case list():
            for each in schema:
                yield from _references(each)


def packed() -> bytes:
    """Return *built_in* as the content of the file: the same bytes whenever it is made."""
    text = json.dumps(built_in(), separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


if __name__ == "__main__":
    FILE.write_bytes(packed())
