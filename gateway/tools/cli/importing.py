"""``admission-gateway import``: converts webhooks and policies into a configuration of the gateway."""

from __future__ import annotations

import shlex
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import ConfigError
from gateway.base.progress import Progress
from gateway.base.text import did_you_mean, shown
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.arguments import add_selection
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from gateway.base.errors import Problem
    from gateway.tools.importing.prepare import Prepared

    Json = dict[str, Any]

HELP: Final = Help(
    "Convert webhook configurations of a cluster, or of files, into the gateway's configuration. After "
    "the word kyverno, gatekeeper or kubewarden: policies of that engine.",
    (
        ("webhooks of the cluster", "import --output config"),
        ("policies of Kyverno in a folder", "import kyverno policies --output config"),
    ),
    "docs/migrate.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add(
        "files",
        metavar="FILE_OR_DIR",
        nargs="*",
        help="files or folders to read instead of a cluster, YAML or JSON; - for standard input. After the "
        "word kyverno, gatekeeper or kubewarden: policies of that engine, in folders below them, too",
    )
    cluster.add_arguments(parser, "to read from")
    add_selection(parser, "import")
    add("--output", metavar="DIR", type=Path, help="write a file for each object (default: standard output)")
    add("--force", action="store_true", help="replace existing files")
    add(
        "--as",
        dest="form",
        choices=("WebhookConfigurations", "CustomResources"),
        default="WebhookConfigurations",
        help="objects of admissionregistration.k8s.io, for files, or of admission-gateway.io/v1alpha1, for a "
        "cluster (default: %(default)s)",
    )
    add("--with-problems", action="store_true", help="also write objects that the gateway would refuse")
    add("--json", action="store_true", help="of kyverno, gatekeeper or kubewarden: print the report as JSON")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Import, and return the exit status. *refuse* prints a usage error and exits."""
    from gateway.tools.importing import notes
    from gateway.tools.importing.other_engines import GROUPS
    from gateway.tools.importing.prepare import prepare, read_texts
    from gateway.tools.importing.selection import select
    from gateway.tools.importing.sources import from_cluster, from_files

    engine = parsed.files.pop(0) if parsed.files and parsed.files[0] in GROUPS else ""
    _refuse_contradictions(parsed, engine, refuse)
    if engine:
        from gateway.tools.cli.importing_engines import run as run_engine

        return run_engine(engine, parsed)
    unreadable: list[Problem] = []
    with Progress("reading webhook configurations and policies"):
        if parsed.files:
            read, unreadable = from_files([Path(one) for one in parsed.files])
        else:
            read = from_cluster(cluster.select(None, parsed.kubeconfig, parsed.context))
    if unreadable and not read:
        raise ConfigError(unreadable)
    found = select(read, parsed.name, parsed.exclude)
    with Progress(f"validating {len(found.imported)} objects"):
        prepared = prepare(found.imported, as_resource=parsed.form == "CustomResources")
    for problem in (*unreadable, *(problem for one in prepared for problem in one.problems)):
        logs.print_error(f"error: {problem}")
    good = [one for one in prepared if not one.problems]
    texts: dict[str, str] = {}
    for one in prepared if parsed.with_problems else good:
        # Duplicates are both written, and the gateway rejects them.
        texts[one.file] = f"{texts[one.file]}---\n{one.text}" if one.file in texts else one.text
    if parsed.output is None:
        logs.print_output(*"---\n".join(texts.values()).splitlines())
    elif texts:
        from gateway.tools.importing.folder import write

        logs.print_output(*write(parsed.output, texts, force=parsed.force))
    documents = [one.document for one in good]
    config = read_texts(one.text for one in good)
    options = [
        text
        for option, value in (("--kubeconfig", parsed.kubeconfig), ("--context", parsed.context))
        if value is not None
        for text in (option, str(value))
    ]
    target = ["--as", parsed.form] if parsed.form == "CustomResources" else []
    if parsed.output is not None or not target:
        target += ["--output", str(parsed.output or "DIR")]
    written = {id(one.document) for one in (prepared if parsed.with_problems else good)}
    _print(
        found.notes,
        [line for one in notes.warnings(documents, config, found.deselected) for line in one.lines()],
        notes.summary(documents, config) if documents else (),
        notes.unregistering([one for one in found.removable if id(one) in written], options, target),
    )
    if unreadable:
        logs.print_error(
            "admission-gateway: unreadable documents were not imported; the error lines above name file and "
            "position. Correct them or remove them from the files; --exclude does not apply to them"
        )
    if len(good) < len(prepared):
        logs.print_error(_left_out(prepared, with_problems=parsed.with_problems))
    return 1 if unreadable or len(good) < len(prepared) else 0


def _refuse_contradictions(parsed: argparse.Namespace, engine: str, refuse: Callable[[str], object]) -> None:
    from gateway.tools.importing.other_engines import GROUPS

    first = "" if engine or not parsed.files else parsed.files[0]
    if first and not Path(first).exists() and (meant := did_you_mean(first, GROUPS)):
        refuse(f"there is no file or folder {shown(first)}{meant}")
    if parsed.files and (parsed.kubeconfig or parsed.context):
        refuse("--kubeconfig and --context cannot be combined with files")
    if parsed.force and parsed.output is None:
        refuse("--force needs --output")
    if parsed.json and not engine:
        refuse("--json needs kyverno, gatekeeper or kubewarden")
    is_selected = parsed.name or parsed.exclude or parsed.with_problems
    if engine and (is_selected or parsed.form != "WebhookConfigurations"):
        refuse(f"{engine} cannot be combined with --name, --exclude, --with-problems and --as")


def _left_out(prepared: Sequence[Prepared], *, with_problems: bool) -> str:
    """Return a message about objects that the gateway would refuse, with the options that exclude them."""
    from gateway.tools.importing.objects import name_of

    bad = [one for one in prepared if one.problems]
    kept = {name_of(one.document) for one in prepared if not one.problems}
    globs: dict[str, None] = {}
    for one in bad:
        # A ? stands for an unprintable character. The other kind may have a valid object of the name.
        name = "".join(escape(c) if c.isprintable() else "?" for c in name_of(one.document))
        globs[f"{one.document['kind']}/{name}" if name_of(one.document) in kept else name] = None
    excluding = " ".join(shlex.join(["--exclude", glob]) for glob in globs)
    verb, them = ("was", "it") if len(bad) == 1 else ("were", "them")
    done = "imported although" if with_problems else "not imported because"
    return (
        f"admission-gateway: {len(bad)} of {len(prepared)} objects {verb} {done} the gateway would refuse "
        f"{them}; see the error lines above. To import without: {excluding}"
    )


def _print(
    left_out: Iterable[str], warnings: Iterable[str], counts: Iterable[str], commands: Sequence[str]
) -> None:
    logs.print_error(
        *(f"note: {line}" for line in left_out),
        *(line if line.startswith(" ") else f"warning: {line}" for line in warnings),
        *(f"summary: {line}" for line in counts),
    )
    if commands:
        order = "# Run in this order when the gateway is registered and serves all this (check --cluster):"
        logs.print_error(order, *commands)
