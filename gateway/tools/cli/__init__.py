"""The command line: one module for each command.

Results go to standard output, everything else to standard error. Exit status: 0 success, 1 failure, 2 wrong
usage. Errors are one line each, without a traceback.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

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

if TYPE_CHECKING:
    from collections.abc import Sequence

# Without this gRPC looks for forks at every call. The gateway starts processes without a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

log = logging.getLogger(__name__)

_COMMANDS = (
    ("serve", "run the gateway", serve),
    ("check", "validate a configuration exactly as serve does", check),
    ("status", "show what running gateways do, and what is wrong with them", status),
    ("decisions", "show recent decisions of running gateways, and why each was made", decisions),
    ("review", "run one AdmissionReview through the configured webhooks", review),
    ("preview", "say what admission does to rendered manifests before they are applied", preview),
    ("test", "run the cases of PolicyTest files against a configuration", test),
    ("rollback", "put a configuration that was in force back in force", rollback),
    ("rollout", "show rollout plans, and pause, resume, skip or roll back a stage", rollout),
    ("replay", "run recorded reviews through another configuration, and report what differs", replay),
    ("audit", "check the stored objects of a cluster against a configuration", audit),
    ("import", "convert the webhooks of a cluster, or of files, into a configuration", importing),
    ("migrate", "move from Gatekeeper, Kyverno or Kubewarden to the gateway", migrate),
    ("sync", "keep an imported configuration equal to the cluster's objects", sync),
    ("manifests", "print or apply the objects that register the gateway in a cluster", manifests),
    ("watchdog", "relax the registration of a gateway that is away, and restore it", watchdog),
    ("policies", "list the ready-made policies, or print a configuration with one", policies),
    ("new", "write a project with a policy, its tests, and a configuration that runs it", new),
    ("completion", "print what a shell needs to complete commands and options", completion),
    ("conformance", "check that a running worker keeps to the worker contract", conformance),
)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command in *argv* (default: the arguments of the process), and exit."""
    if argv is None:
        buffer_output()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsed = build_parser().parse_args(arguments)
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
        logs.print_error(f"admission-gateway: {error}")
        status = 1
    except KeyboardInterrupt:
        status = 1
    except OSError as error:
        status = 1
        if not isinstance(error, BrokenPipeError):
            logs.print_error(f"admission-gateway: {error}")
        log.debug("the command failed", exc_info=True)
        _discard_output()
    sys.exit(status)


def _discard_output() -> None:
    """Prevent the interpreter from writing the rest of the output again when it exits."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Prints usage errors in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        logs.print_error(f"{self.prog}: {message}; see {self.prog} --help")
        self.exit(2)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        "admission-gateway",
        description="One admission webhook for a whole cluster, with policies in gRPC workers.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--verbose", action="store_true", help="log debug messages")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary, module in _COMMANDS:
        description = f"{summary[0].upper()}{summary[1:]}."
        module.add_arguments(commands.add_parser(name, help=summary, description=description))
    return parser
