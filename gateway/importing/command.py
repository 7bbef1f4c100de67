"""``admission-gateway import``: reads webhook configurations, writes them as the gateway's configuration."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.cluster import chosen as cluster
from gateway.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from gateway.config.model import Config
    from gateway.errors import Problem

    Json = dict[str, Any]

_GATEWAY: Final = "apiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\nkubernetes: {}\n"


@dataclass(slots=True)
class Sorted:
    """What was read, by what becomes of it."""

    imported: list[Json] = field(default_factory=list)
    """In the order in which they are called, the gateway's own entries taken out."""
    removable: list[Json] = field(default_factory=list)
    """Those of them that can be deleted in the cluster as they are."""
    deselected: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add to *parser* what the command takes."""
    add = parser.add_argument
    add(
        "files",
        metavar="FILE_OR_DIR",
        nargs="*",
        type=Path,
        help="read these, YAML or JSON, - for standard input, instead of a cluster",
    )
    cluster.add_arguments(parser, "to read from")
    add("--name", metavar="GLOB", action="append", default=[], help="only configurations of such a name")
    add(
        "--exclude", metavar="GLOB", action="append", default=[], help="leave these out; both may be repeated"
    )
    add("--output", metavar="DIR", type=Path, help="write a file for each object (default: standard output)")
    add("--force", action="store_true", help="replace files that are there")
    add(
        "--as",
        dest="form",
        choices=("WebhookConfigurations", "CustomResources"),
        default="WebhookConfigurations",
        help="admissionregistration.k8s.io, for files, or admission-gateway.io/v1alpha1, for a cluster",
    )
    add("--with-problems", action="store_true", help="write also what the gateway would refuse")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Import, and return the exit status. *refuse* exits, and says what is wrong."""
    from gateway.importing import notes
    from gateway.importing.objects import cleaned, file_name
    from gateway.importing.sources import from_cluster, from_files
    from gateway.registration.written import to_yaml

    if parsed.files and (parsed.kubeconfig or parsed.context):
        refuse("--kubeconfig and --context are for a cluster, and files were given")
    if parsed.force and parsed.output is None:
        refuse("--force is for --output")
    if parsed.files:
        read = from_files(parsed.files)
    else:
        read = from_cluster(cluster.chosen(None, parsed.kubeconfig, parsed.context))
    found = sort(read, parsed.name, parsed.exclude)
    documents = [cleaned(one, as_resource=parsed.form == "CustomResources") for one in found.imported]
    texts: dict[str, str] = {}
    for one in documents:
        text = to_yaml(one)
        name = file_name(one)
        # Two of one name are for the reader to refuse, who has to see both.
        texts[name] = f"{texts[name]}---\n{text}" if name in texts else text
    config, problems = _checked(texts)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems and not parsed.with_problems:
        print(
            "admission-gateway: nothing was written, since the gateway would refuse it; --exclude what is "
            "wrong, or write it all the same --with-problems",
            file=sys.stderr,
        )
        return 1
    if parsed.output is None:
        print("---\n".join(texts.values()), end="")
    else:
        from gateway.importing.folder import write

        for line in write(parsed.output, texts, force=parsed.force):
            print(line)
    hooks = [] if config is None else [*config.mutating, *config.validating]
    warnings = [
        *(map(str, config.warnings) if config else ()),
        *notes.differences(found.imported, hooks),
        *notes.left_with(found.deselected, found.imported),
        *notes.managers(found.imported),
    ]
    options = [
        text
        for option, value in (("--kubeconfig", parsed.kubeconfig), ("--context", parsed.context))
        if value is not None
        for text in (option, str(value))
    ]
    _say(found.notes, warnings, notes.unregistering(found.removable, options))
    return 1 if problems else 0


def sort(read: Sequence[Json], names: Sequence[str], excluded: Sequence[str]) -> Sorted:
    """Return what becomes of the objects *read*: those with one of *names*, if any, and none *excluded*."""
    from gateway.config.fields import printable
    from gateway.importing.notes import title
    from gateway.importing.objects import in_order, is_configuration, name_of, without
    from gateway.registration.own import entries, own_places

    found = Sorted()
    configurations = in_order(one for one in read if is_configuration(one))
    for document in read:
        if _has_conversion(document):
            found.notes.append(
                f"{title(document)}: conversion webhooks are not admission, and stay as they are"
            )
    for document, own in zip(configurations, own_places(configurations), strict=True):
        name = name_of(document)
        if name.endswith(".static.k8s.io"):
            found.notes.append(
                f"{title(document)}: a static manifest of the API server, which reads it from its own files"
            )
        elif own and len(own) == len(entries(document)):
            found.notes.append(f"{title(document)}: left out, since it registers a gateway itself")
        elif (names and not _matches(name, names)) or _matches(name, excluded):
            found.deselected.append(document)
        else:
            found.imported.append(without(document, own))
            if not own:
                found.removable.append(document)
            for place in own:
                entry = printable(entries(document)[place].get("name"))
                found.notes.append(
                    f"{title(document)}: without {entry}, which registers a gateway itself and has to stay: "
                    "take the others out with kubectl edit"
                )
    if not found.imported:
        found.notes.append("no webhook configuration to import was found")
    return found


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _has_conversion(document: Json) -> bool:
    match document:
        case {"kind": "CustomResourceDefinition", "spec": {"conversion": {"strategy": "Webhook"}}}:
            return True
    return False


def _checked(texts: dict[str, str]) -> tuple[Config | None, list[Problem]]:
    """Return what the gateway reads in *texts*, None if it refuses them, and why it does."""
    from gateway.config.load import load

    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        # Without a cluster, conditions that ask its authorizer would be refused.
        (Path(folder) / "gateway.yaml").write_text(_GATEWAY)
        try:
            config = load([Path(folder)])
        except ConfigError as error:
            return None, [_placed(problem) for problem in error.problems]
    return replace(config, warnings=tuple(map(_placed, config.warnings))), []


def _placed(problem: Problem) -> Problem:
    """Return *problem* with the object alone as its place, since its file is none that anybody knows."""
    return replace(
        problem, where=problem.where.partition(": document ")[2].partition(": ")[2] or problem.where
    )


def _say(left_out: Sequence[str], warnings: Sequence[str], commands: Sequence[str]) -> None:
    for line in left_out:
        print(f"note: {line}", file=sys.stderr)
    for line in warnings:
        print(f"warning: {line}", file=sys.stderr)
    if commands:
        print(
            "# Once the gateway is registered and serves all of this (check --cluster), in this order:",
            file=sys.stderr,
        )
        for line in commands:
            print(line, file=sys.stderr)
