"""``kubectl admission``: what a gateway did and would do, asked of the cluster of a kubeconfig.

kubectl runs the program ``kubectl-admission`` on the PATH with the arguments after ``admission``. The options
that kubectl has too mean the same. Exit status: as the commands of ``admission-gateway``.

Source: kubernetes.io, "Extend kubectl with plugins"; k8s.io/kubectl pkg/cmd/plugin.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from gateway import __version__
from gateway.tools.cli import run_program
from gateway.tools.cli.parser import Parser
from gateway.tools.kubectl import decisions, preview, status, why

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS = (
    ("why", "say why a request was denied, or an object changed", why),
    ("decisions", "show recent decisions of all replicas", decisions),
    ("status", "show what the gateways do, and what is wrong with them", status),
    ("preview", "say what the configuration in force does to manifests", preview),
)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command in *argv* (default: the arguments of the process), and exit."""
    run_program(build_parser(), argv)


def build_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        "kubectl admission",
        description="Says why admission-gateway denied a request, and what it would do to your manifests.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--verbose", action="store_true", help="log debug messages")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parser.set_defaults(run=lambda *_: parser.show_help())
    for name, summary, module in _COMMANDS:
        module.add_arguments(commands.add_parser(name, help=summary, about=module.HELP))
    return parser
