"""``admission-gateway migrate``: from Gatekeeper, Kyverno or Kubewarden to the gateway.

Exit status: 1 if a document cannot run, or something could not be read. Nothing in a cluster is changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import ConfigError, Problem
from gateway.base.progress import Progress
from gateway.base.report_lines import number_of
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli import migrate_prove
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from gateway.tools.importing.other_engines import Imported
    from gateway.tools.migrating.engines import Engine
    from gateway.tools.migrating.plan import Moved, Plan
    from gateway.tools.migrating.reading import Read
    from gateway.tools.migrating.steps import Step

    Json = dict[str, Any]

PROVE: Final = "prove"
_NAMES: Final = ("gatekeeper", "kyverno", "kubewarden")
_MODULES: Final = (
    "the worker asks no registry: pull the modules with kwctl, and name a volume with them in "
    "engines.kubewarden.modules of the values"
)

HELP: Final = Help(
    "Plan the move from Gatekeeper, Kyverno or Kubewarden: write the files for it, and print its steps. "
    "Nothing in the cluster is changed.",
    (
        ("from the cluster", "migrate --output migration"),
        ("from files", "migrate policies webhooks.yaml --output migration"),
    ),
    "docs/migrate-engines.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command, and the command ``prove``, to *parser*."""
    own = Parser(parser.prog, about=parser.about)
    for one in (parser, own):
        _add_options(one)
    own.set_defaults(run=lambda parsed, _: run(parsed, own.error))
    own.format_help = parser.format_help  # type: ignore[method-assign]
    summary = "find out whether a configuration answers reviews as the old engine does"
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", prog=parser.prog)
    prove = commands.add_parser(PROVE, help=summary, about=migrate_prove.HELP)
    migrate_prove.add_arguments(prove)

    def parse(
        arguments: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if not arguments:
            parser.show_help()
        # argparse takes the last of several files for the name of a command.
        if arguments[0] == PROVE:
            return prove.parse_known_args(arguments[1:], namespace)
        return own.parse_known_args(arguments, namespace)

    parser.parse_known_args = parse  # type: ignore[method-assign, assignment]


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "files",
        metavar="FILE_OR_DIR",
        nargs="*",
        help="files or folders with policies and webhook configurations instead of a cluster; - for standard "
        "input",
    )
    cluster.add_arguments(parser, "to move")
    add(
        "--engine",
        action="append",
        choices=_NAMES,
        default=[],
        help="move only this engine; may be repeated (default: all that are found)",
    )
    add("--output", metavar="DIR", type=Path, required=True, help="folder for the files that are written")
    add("--force", action="store_true", help="replace existing files")
    add("--json", action="store_true", help="print the report as JSON")


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Write the files, print the report, and return the exit status. *refuse* exits with an error."""
    from gateway.tools.importing.folder import write
    from gateway.tools.migrating.engines import ENGINES
    from gateway.tools.migrating.steps import steps

    if parsed.files and (parsed.kubeconfig or parsed.context):
        refuse("--kubeconfig and --context cannot be combined with files")
    engines = [ENGINES[name] for name in dict.fromkeys(parsed.engine or ENGINES)]
    options = tuple(
        text
        for option, value in (("--kubeconfig", parsed.kubeconfig), ("--context", parsed.context))
        if value is not None
        for text in (option, str(value))
    )
    read, plan = _read(parsed, engines)
    unreadable = list(dict.fromkeys(problem for one in plan.moved for problem in one.found.unreadable))
    plan.moved = [one for one in plan.moved if one.found.objects or one.old.registered]
    if not plan.moved:
        if unreadable:
            raise ConfigError(unreadable)
        names = ", ".join(engine.title for engine in engines)
        raise ConfigError([Problem("", "", f"found no policy and no webhook of {names}")])
    problems = (*unreadable, *read.missing, *(p for one in plan.moved for p in one.old.problems))
    for problem in (*problems, *(too_large := plan.too_large())):
        logs.print_error(f"error: {problem}")
    plan.options = options
    written = [
        line
        for folder, texts in plan.files().items()
        for line in write(parsed.output / folder, texts, force=parsed.force)
    ]
    todo = steps(plan, parsed.output, options)
    if parsed.json:
        from gateway.base.text import printable_json

        report = {**_report(plan), "files": written, "steps": [_step(one) for one in todo]}
        logs.print_text(printable_json(json.dumps(report, ensure_ascii=False, indent=2)) + "\n")
    else:
        logs.print_output(*written, *_lines(plan), *_step_lines(todo))
    is_whole = not (problems or too_large)
    return 0 if is_whole and not any(each.problems for one in plan.moved for each in one.found.objects) else 1


def _read(parsed: argparse.Namespace, engines: Sequence[Engine]) -> tuple[Read, Plan]:
    """Return what the files or the cluster have, and what of it moves."""
    from gateway.tools.importing.cluster import kinds_of_cluster
    from gateway.tools.migrating.plan import Plan, moved
    from gateway.tools.migrating.reading import from_cluster, from_files

    if parsed.files:
        with Progress("reading policies and webhooks"):
            read = from_files([Path(one) for one in parsed.files])
        notes = _leave_out_exceptions(read)
        plan = Plan([moved(one, read.documents, read.webhooks, {}) for one in engines])
        _add_notes(plan, notes)
        return read, plan
    settings = cluster.select(None, parsed.kubeconfig, parsed.context)
    with Progress("reading policies and webhooks"):
        controllers = {one.controller for one in engines if one.controller}
        read = from_cluster(settings, [one.name for one in engines], controllers)
    notes = _leave_out_exceptions(read)
    with Progress(f"validating {len(read.documents)} objects"):
        plan = Plan([moved(one, read.documents, read.webhooks, {}) for one in engines], is_cluster=True)
        unknown = {resource for one in plan.moved for resource in one.needs.unknown}
        if unknown:
            kinds = kinds_of_cluster(unknown, settings)
            plan.moved = [moved(one, read.documents, read.webhooks, kinds) for one in engines]
    plan.replicas = read.replicas
    plan.exception_namespaces = read.exception_namespaces or ()
    _add_notes(plan, notes)
    return read, plan


def _leave_out_exceptions(read: Read) -> list[str]:
    """Leave out the exceptions that Kyverno does not apply, and return notes about that."""
    from gateway.tools.migrating.kyverno_exceptions import divide

    read.documents, notes = divide(read.documents, read.exception_namespaces)
    return notes


def _add_notes(plan: Plan, notes: Sequence[str]) -> None:
    for one in plan.moved:
        if one.engine.name == "kyverno":
            one.old.notes += notes
        elif one.engine.name == "kubewarden" and one.needs_worker:
            one.old.notes.append(_MODULES)


def _counts(plan: Plan) -> dict[str, int]:
    """Return how many documents run where."""
    counts = {"native": 0, **{f"{name}Worker": 0 for name in _NAMES}, "refused": 0}
    for moved, one in _objects(plan):
        where = moved.where(one)
        counts[f"{moved.engine.name}Worker" if where == "worker" else where] += 1
    return counts


def _objects(plan: Plan) -> Iterator[tuple[Moved, Imported]]:
    for moved in plan.moved:
        for one in moved.found.objects:
            yield moved, one


def _lines(plan: Plan) -> Iterator[str]:
    for moved in plan.moved:
        title, objects = moved.engine.title, moved.found.objects
        webhooks = sum(len(one["webhooks"]) for one in moved.old.documents)
        yield f"{title}: {number_of(len(objects), 'document')}, {number_of(webhooks, 'webhook')}"
        headings = {
            "native": "run in the gateway, as CEL",
            "worker": f"run in the worker of {title}",
            "refused": "cannot run",
        }
        for where, heading in headings.items():
            found = [one for one in objects if moved.where(one) == where]
            if found:
                yield f"  {heading}: {len(found)}"
            for one in found:
                yield f"    {one.kind}/{one.name or '(no name)'}"
                yield from (f"      {problem}" for problem in _reasons(one))
        yield from (f"  note: {note}" for note in moved.old.notes)
        if not moved.old.documents:
            yield f"  note: found no webhook configuration of {title}; give one to {PROVE} with --old"
    counts = _counts(plan)
    parts = [f"{counts['native']} in the gateway"]
    parts += [
        f"{counts[f'{one.engine.name}Worker']} in the worker of {one.engine.title}" for one in plan.moved
    ]
    yield f"summary: {', '.join(parts)}, {counts['refused']} cannot run"


def _step_lines(todo: Sequence[Step]) -> Iterator[str]:
    yield "steps, in this order:"
    for number, one in enumerate(todo, 1):
        yield f"{number}. {one.title}"
        yield from (f"   {command}" for command in one.commands)


def _reasons(one: Imported) -> list[Problem]:
    return [Problem("", path, message) for path, message in one.problems or one.differences]


def _step(one: Step) -> Json:
    return {"title": one.title, "commands": list(one.commands)}


def _report(plan: Plan) -> Json:
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "MigrationReport",
        "counts": _counts(plan),
        "engines": [
            {
                "engine": moved.engine.name,
                "objects": [
                    {
                        "kind": one.kind,
                        "name": one.name,
                        "source": one.place,
                        "runs": moved.where(one),
                        **({"policiesOfWorker": list(one.in_worker)} if one.in_worker else {}),
                        "reasons": [{"field": each.field, "message": each.message} for each in _reasons(one)],
                        **({} if one.problems else {"file": one.file}),
                    }
                    for one in moved.found.objects
                ],
                "webhooks": [
                    {"configuration": title, "webhooks": names} for title, names in _webhooks(moved)
                ],
                "notes": moved.old.notes,
            }
            for moved in plan.moved
        ],
    }


def _webhooks(moved: Moved) -> Iterator[tuple[str, list[str]]]:
    from gateway.tools.importing.objects import title

    for one in moved.old.documents:
        yield title(one), [str(entry.get("name")) for entry in one["webhooks"]]
