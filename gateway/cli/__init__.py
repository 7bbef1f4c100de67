"""The command line: ``serve``, ``check``, ``review``, ``import``, ``sync``, ``manifests``, ``conformance``.

Results go to standard output and everything else to standard error. Exit status: 0 done, 1 it failed, 2 it
was called wrongly. An error is words for a person, never a traceback.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gateway import __version__, logs, manifests
from gateway.cli import conformance
from gateway.errors import ConfigError, GatewayError
from gateway.importing import command as importing
from gateway.importing import sync
from gateway.inspection import command as inspection
from gateway.text import printable_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.core.webhook import Phase

# gRPC looks for forks at every call otherwise; the gateway starts processes afresh instead.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command that *argv* (default: the process's own arguments) names, and exit."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsed = _parser().parse_args(arguments)
    # All others say in their own words how it went.
    usual = logging.INFO if parsed.command == "serve" else logging.ERROR
    logs.set_up(logging.DEBUG if parsed.verbose else usual, "%(asctime)s %(levelname)s %(message)s")
    if argv is None:
        logs.log_uncaught()
    for name in ("asyncio", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        status = parsed.run(parsed, arguments)
        # Here, and not when all has ended, somebody can still say that nothing was written.
        if sys.stdout is not None:
            sys.stdout.flush()
    except ConfigError as error:
        logs.say(*error.problems)
        status = 1
    except GatewayError as error:
        logs.say(f"admission-gateway: {error}")
        status = 1
    except KeyboardInterrupt:
        status = 1
    except OSError as error:
        status = 1
        if not isinstance(error, BrokenPipeError):
            logs.say(f"admission-gateway: {error}")
        logging.debug("", exc_info=True)
        _forget_output()
    sys.exit(status)


def _forget_output() -> None:
    """Have the interpreter not try again to write what is left."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Says what was wrong in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        logs.say(f"{self.prog}: {message}; see {self.prog} --help")
        self.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "admission-gateway", description="One admission webhook in front of many gRPC policy workers."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--verbose", action="store_true", help="log debugging details")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="run the gateway"))

    check = commands.add_parser("check", help="validate a configuration as serve would")
    _add_config(check, required=True)
    inspection.add_arguments(check)
    check.set_defaults(run=_check, parser=check)

    review = commands.add_parser("review", help="run one AdmissionReview through phases and workers")
    review.add_argument("file", metavar="FILE", help="an AdmissionReview, JSON or YAML; - for standard input")
    _add_config(review, required=True)
    review.add_argument("--phase", choices=("mutate", "validate", "both"), default="both")
    review.add_argument("--explain", action="store_true", help="say for each webhook what came of it")
    review.set_defaults(run=_review)

    importing.add_arguments(
        commands.add_parser("import", help="write the webhooks of a cluster, or of files, as a configuration")
    )
    sync.add_arguments(
        commands.add_parser("sync", help="keep what import has written equal to the cluster's objects")
    )
    registering = commands.add_parser(
        "manifests", help="print or apply what registers the gateway in a cluster"
    )
    _add_config(registering, required=True)
    manifests.add_arguments(registering)

    conformance.add_arguments(
        commands.add_parser("conformance", help="check that a running worker keeps to the worker contract")
    )
    return parser


def _add_config(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--config",
        metavar="DIR_OR_FILE",
        nargs="+",
        action="extend",
        type=Path,
        required=required,
        default=None if required else [],
        help="configuration files, or folders of them",
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, required=False)
    parser.add_argument(
        "--dev", action="store_true", help="a self-signed certificate and, without --config, sample policies"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", type=_address, help="HTTPS front end")
    parser.add_argument(
        "--admin-listen", metavar="HOST:PORT", type=_address, help="/livez, /readyz and /metrics, plain HTTP"
    )
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="serving certificate, PEM")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key, PEM")
    parser.add_argument("--client-ca", metavar="FILE", type=Path, help="CA of the callers' certificates, PEM")
    parser.add_argument("--processes", metavar="N", type=_processes, help="gateway processes on one port")
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        default=Path(".admission-gateway"),
        help="where --dev keeps its certificate (default: %(default)s)",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.set_defaults(run=_serve, parser=parser)


def _address(text: str) -> str:
    from gateway.config.addresses import parse_host_port

    try:
        parse_host_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _processes(text: str) -> int:
    from gateway.config.resources import MOST_PROCESSES

    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"found {text}, expected a number from 1 to {MOST_PROCESSES}")
    return int(text)


def _expect_signals() -> None:
    """Take the signals of ``serve`` while its modules are imported, which takes longer than all else."""
    # Nothing has been read that could be read again.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Nothing has been made that needs an end. The kernel would not end the init of a container.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _serve(parsed: argparse.Namespace, arguments: list[str]) -> int:
    _expect_signals()

    import uvloop

    from gateway.options import Options
    from gateway.process.serve import serve, serve_child

    if not parsed.config and not parsed.dev:
        parsed.parser.error("--config or --dev is needed")
    if (parsed.tls_cert is None) != (parsed.tls_key is None):
        parsed.parser.error("--tls-cert and --tls-key go together")
    options = Options(
        config=tuple(parsed.config),
        dev=parsed.dev,
        state=parsed.state,
        listen=parsed.listen,
        admin_listen=parsed.admin_listen,
        processes=parsed.processes,
        tls_cert=parsed.tls_cert,
        tls_key=parsed.tls_key,
        client_ca=parsed.client_ca,
    )
    if parsed.child:
        number, _, runtime = parsed.child.partition(":")
        uvloop.run(serve_child(options, int(number), Path(runtime)))
    else:
        uvloop.run(serve(options, arguments))
    return 0


def _check(parsed: argparse.Namespace, _: list[str]) -> int:
    from gateway.config.load import load
    from gateway.config.model import summary

    inspection.refuse_without_cluster(parsed, parsed.parser.error)
    config = load(parsed.config)
    logs.say(*(f"warning: {warning}" for warning in config.warnings))
    if config.gateway.tls.cert_file is None:
        logs.say("warning: no tls.certFile: serve will need --tls-cert and --tls-key, or --dev")
    kubernetes = config.gateway.kubernetes
    if kubernetes is not None and kubernetes.custom_resources and not parsed.cluster:
        logs.say("warning: custom resources of the cluster are not looked at")
    if not parsed.json:
        logs.out(f"valid: {summary(config)}")
    return inspection.run(parsed, config) if parsed.cluster else 0


def _review(parsed: argparse.Namespace, _: list[str]) -> int:
    import uvloop

    from gateway.config.load import load
    from gateway.offline import read_review, review

    config = load(parsed.config)
    phases: list[Phase] = ["mutate", "validate"] if parsed.phase == "both" else [parsed.phase]
    answer, lines = uvloop.run(review(config, read_review(parsed.file), phases))
    if parsed.explain:
        logs.say(*lines)
    logs.out(printable_json(answer.decode()))
    return 0
