"""The command line: one module for each command.

Results go to standard output, everything else to standard error. Exit status: 0 success, 1 failure, 2 wrong
usage. Errors are one line each, without a traceback.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn

from admission_gateway_worker.log_lines import buffer_output, log_uncaught
from gateway import __version__
from gateway.base import logs
from gateway.base.errors import ConfigError, GatewayError
from gateway.tools.cli import (
    audit,
    check,
    completion,
    conformance,
    decisions,
    importing,
    manifests,
    migrate,
    new,
    policies,
    preview,
    replay,
    review,
    rollback,
    rollout,
    serve,
    status,
    sync,
    test,
    watchdog,
)
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

# Without this gRPC looks for forks at every call. The gateway starts processes without a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

log = logging.getLogger(__name__)

_PAGE: Final = "docs/commands.md"
_COMMANDS: Final = {
    "try and test": (
        ("policies", "list the ready-made policies, or print one's configuration", policies),
        ("new", "write a project with a policy, its tests and a configuration", new),
        ("check", "validate a configuration exactly as serve does", check),
        ("review", "run one AdmissionReview or object through the webhooks", review),
        ("test", "run test cases of policies", test),
        ("preview", "say what admission does to manifests before you apply them", preview),
        ("replay", "run recorded reviews through another configuration", replay),
        ("conformance", "check that a worker keeps to the worker contract", conformance),
    ),
    "run": (
        ("serve", "run the gateway", serve),
        ("manifests", "print or apply the objects that register the gateway", manifests),
        ("watchdog", "relax the registration while the gateway is away", watchdog),
    ),
    "operate": (
        ("status", "show what running gateways do, and what is wrong with them", status),
        ("decisions", "show recent decisions, and why each was made", decisions),
        ("audit", "check the stored objects of a cluster", audit),
        ("rollout", "show rollout plans; pause, resume, skip or roll back a stage", rollout),
        ("rollback", "put an earlier configuration back in force", rollback),
    ),
    "move to the gateway": (
        ("import", "convert webhooks and policies into a configuration", importing),
        ("migrate", "move from Gatekeeper, Kyverno or Kubewarden", migrate),
        ("sync", "keep an imported configuration equal to the cluster", sync),
    ),
    "shell": (("completion", "print what a shell needs to complete commands", completion),),
}
"""The commands by what one wants to do: name, summary and module of each."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command in *argv* (default: the arguments of the process), and exit."""
    run_program(build_parser(), argv)


def run_program(parser: Parser, argv: Sequence[str] | None) -> NoReturn:
    """Run the command of *parser* in *argv* (default: the arguments of the process), and exit."""
    if argv is None:
        buffer_output()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsed = parser.parse_args(arguments)
    # All other commands print their results themselves.
    level = logging.INFO if parsed.command == "serve" else logging.ERROR
    logs.set_up_program(level, is_verbose=parsed.verbose)
    if argv is None:
        log_uncaught()
    try:
        status = parsed.run(parsed, arguments)
        # An error of the last write can still be reported here, but not when the interpreter exits.
        if sys.stdout is not None:
            sys.stdout.flush()
    except ConfigError as error:
        logs.print_error(*error.problems)
        status = 1
    except GatewayError as error:
        logs.print_error(f"{parser.prog}: {error}")
        status = 1
    except KeyboardInterrupt:
        status = 1
    except OSError as error:
        status = 1
        if not isinstance(error, BrokenPipeError):
            logs.print_error(f"{parser.prog}: {error}")
        log.debug("the command failed", exc_info=True)
        _discard_output()
    sys.exit(status)


def _discard_output() -> None:
    """Prevent the interpreter from writing the rest of the output again when it exits."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        "admission-gateway",
        about=Help("One admission webhook for a whole cluster, with policies in gRPC workers.", (), _PAGE),
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--verbose", action="store_true", help="log debug messages")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parser.set_defaults(run=lambda *_: parser.show_help())
    parser.sections = {title: [name for name, *_ in rows] for title, rows in _COMMANDS.items()}
    for name, summary, module in chain.from_iterable(_COMMANDS.values()):
        module.add_arguments(commands.add_parser(name, help=summary, about=module.HELP))
    return parser
