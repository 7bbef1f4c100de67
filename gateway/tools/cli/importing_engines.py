"""``admission-gateway import ENGINE``: the policies of another engine, with a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import ConfigError, Problem
from gateway.base.progress import Progress
from gateway.server.kubernetes import select_cluster as cluster

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gateway.config.yaml.documents import Document
    from gateway.tools.importing.other_engines import Found, Imported

    Json = dict[str, Any]

_TITLES: Final = {
    "runs": "runs as it is",
    "differs": "runs with a difference",
    "worker": "runs in a worker",
    "refused": "cannot run",
}
"""By result."""


def run(engine: str, parsed: argparse.Namespace) -> int:
    """Import the documents of *engine*, print the report, and return the exit status."""
    from gateway.tools.importing.cluster import documents_of, kinds_of_cluster
    from gateway.tools.importing.needs import FILE, POOLS, kinds_of, pools_of, settings_for
    from gateway.tools.importing.other_engines import judge, of_engine
    from gateway.tools.importing.sources import below
    from gateway.tools.registration.yaml_output import to_yaml

    paths = [Path(one) for one in parsed.files]
    missing: list[str] = []
    settings = None if paths else cluster.select(None, parsed.kubeconfig, parsed.context)
    with Progress(f"reading the policies of {engine}"):
        if settings is None:
            documents: Sequence[Document] = list(below(paths))
        else:
            documents, missing = documents_of(engine, settings)
        found = of_engine(engine, documents)
    for problem in (*found.unreadable, *missing):
        logs.print_error(f"error: {problem}")
    if found.unreadable and not found.objects and not found.passed_over:
        raise ConfigError(found.unreadable)
    with Progress(f"validating {len(found.objects)} objects"):
        needs = judge(found.objects, kinds_of(found.definitions), has_workers=True)
        if needs.unknown and settings is not None:
            kinds = kinds_of_cluster(needs.unknown, settings)
            found = of_engine(engine, documents)
            needs = judge(found.objects, kinds, has_workers=True)
    texts: dict[str, str] = {}
    for one in found.objects:
        if not one.problems:
            # Names that differ only in the case of their kind have one file.
            texts[one.file] = f"{texts[one.file]}---\n{one.text}" if one.file in texts else one.text
    content = needs.settings()
    is_in_worker = any(one.result == "worker" for one in found.objects)
    if is_in_worker:
        content = settings_for(needs.read, [engine], has_cluster=content is not None)
        texts[POOLS] = to_yaml(pools_of([engine])[0])
    if content is not None:
        texts[FILE] = to_yaml(content)
    written: list[str] = []
    if parsed.output is not None and texts:
        from gateway.tools.importing.folder import write

        written = write(parsed.output, texts, force=parsed.force)
    if parsed.json:
        from gateway.base.text import printable_json

        report = _report(engine, found, missing)
        if content is not None:
            report["gatewayConfiguration"] = content
        logs.print_text(printable_json(json.dumps(report, ensure_ascii=False, indent=2)) + "\n")
    else:
        logs.print_output(*written, *_lines(found, len(missing)), *_advice(content))
    return 1 if found.unreadable or missing or any(one.problems for one in found.objects) else 0


def _counts(found: Found) -> dict[str, int]:
    counts = dict.fromkeys(_TITLES, 0)
    for one in found.objects:
        counts[one.result] += 1
    return counts


def _lines(found: Found, missing: int) -> Iterator[str]:
    for result, heading in _TITLES.items():
        objects = [one for one in found.objects if one.result == result]
        if objects:
            yield f"{heading}: {len(objects)}"
        for one in objects:
            yield f"  {one.kind}/{one.name or '(no name)'}"
            for problem in _reasons(one):
                yield f"    {problem}"
            if one.in_worker:
                yield f"    policies of the worker: {', '.join(one.in_worker)}"
            for version, plural in one.reads:
                yield f"    reads {plural} of {version}"
    passed = found.passed_over.total()
    if passed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found.passed_over.items()))
        yield f"passed over, of other kinds: {passed} ({kinds})"
    counts = _counts(found)
    shown = {result: count for result, count in counts.items() if count or result != "worker"}
    parts = [f"{count} {_summary(result, count)}" for result, count in shown.items()]
    parts += [f"{len(found.unreadable)} could not be read"] if found.unreadable else []
    parts += [f"{missing} {'kind' if missing == 1 else 'kinds'} could not be listed"] if missing else []
    yield f"summary: {', '.join(parts)}"


def _advice(content: Json | None) -> Iterator[str]:
    """Yield what the GatewayConfiguration *content* is for."""
    if content is None:
        return
    from gateway.tools.importing.needs import FILE, POOLS
    from gateway.tools.registration.yaml_output import to_yaml

    policies = content.get("policies", {})
    what = []
    if "engines" in policies:
        what.append(f"a worker evaluates policies: {POOLS} has its pool, with the address 127.0.0.1")
    if "resources" in policies:
        what.append("policies read objects of these kinds")
    elif "kubernetes" in content:
        what.append("policies need a cluster")
    yield f"{'; '.join(what)}: add this to your GatewayConfiguration, or use {FILE} as it is"
    added: Json = {key: content[key] for key in content if key in ("kubernetes", "policies")}
    yield from (f"  {line}" for line in to_yaml(added).splitlines())


def _summary(result: str, count: int) -> str:
    if count == 1 or result == "refused":
        return _TITLES[result]
    return {"runs": "run as they are", "differs": "run with a difference", "worker": "run in a worker"}[
        result
    ]


def _reasons(one: Imported) -> list[Problem]:
    return [Problem("", path, message) for path, message in one.problems or one.differences]


def _resource(version: str, plural: str) -> Json:
    return {"apiVersion": version, "resource": plural}


def _report(engine: str, found: Found, missing: list[str]) -> Json:
    objects = [
        {
            "kind": one.kind,
            "name": one.name,
            "source": one.place,
            "result": one.result,
            "reasons": [{"field": each.field, "message": each.message} for each in _reasons(one)],
            **({} if one.problems else {"file": one.file}),
            **({"policiesOfWorker": list(one.in_worker)} if one.in_worker else {}),
            **({"reads": [_resource(*each) for each in one.reads]} if one.reads else {}),
        }
        for one in found.objects
    ]
    return {
        "engine": engine,
        "counts": _counts(found),
        "objects": objects,
        "passedOver": dict(sorted(found.passed_over.items())),
        "unreadable": [str(each) for each in found.unreadable],
        "missingRights": missing,
    }
