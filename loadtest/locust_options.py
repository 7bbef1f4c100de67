"""The options that the Locust users add to Locust's own; each may be given as an environment variable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtest.locust_plan import Limits

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ArgumentGroup
    from collections.abc import Callable

CORPUS: Final = Path(__file__).parent / "corpus"
PATH: Final = "/validate"


def add_options(parser: ArgumentParser) -> None:
    """Add the options to Locust's *parser*."""
    _add_load(parser)
    _add_access(parser)
    _add_limits(parser)


def check(options: Namespace, *, distributed: bool) -> None:
    """Refuse *options* that contradict each other.

    Raises:
        ValueError: they do.
    """
    if options.via == "apiserver":
        if options.path:
            raise ValueError("--path is for --via direct: an API server calls what is registered with it")
    elif options.namespace or options.persist:
        raise ValueError("--namespace and --persist are for --via apiserver")
    if distributed and (options.persist or options.stop_after):
        raise ValueError("--persist and --stop-after need a run of one process")


def limits(options: Namespace) -> Limits:
    """Return the limits that *options* set."""
    return Limits(options.max_p99_ms, options.max_failure_ratio, options.min_sent_ratio)


def _add_load(parser: ArgumentParser) -> None:
    add = _adder(parser.add_argument_group("Admission requests"))
    add(
        "--via",
        choices=["direct", "apiserver"],
        default="direct",
        help="post reviews to a gateway, or create objects at an API server (default: %(default)s)",
    )
    add(
        "--corpus",
        default=str(CORPUS),
        metavar="DIR",
        help="folder of AdmissionReviews, for an API server also of objects, *.json (default: %(default)s)",
    )
    add(
        "--path",
        action="append",
        metavar="PATH",
        help=f"direct: the gateway's path, such as /validate/NAME; may be given again (default: {PATH})",
    )
    add(
        "--namespace",
        metavar="NAME",
        help="apiserver: where objects are created (default: the namespace that they were in)",
    )
    add(
        "--persist",
        action="store_true",
        help="apiserver: store the objects, and delete them in the end (default: create with dryRun=All)",
    )
    add(
        "--rate",
        type=float,
        default=10.0,
        metavar="N",
        help="requests a second for each user (default: %(default)s)",
    )
    add(
        "--stop-after",
        type=int,
        metavar="N",
        help="end the run at N answers, if --run-time does not end it before",
    )


def _add_access(parser: ArgumentParser) -> None:
    add = _adder(parser.add_argument_group("Access to the gateway or API server"))
    add(
        "--ca-file",
        metavar="FILE",
        help="PEM certificates of the authorities that the server is checked against",
    )
    add("--insecure", action="store_true", help="do not check the API server's certificate")
    add("--token-file", metavar="FILE", help="holds a bearer token")
    add("--client-cert", metavar="FILE", help="PEM client certificate")
    add("--client-key", metavar="FILE", help="its key")


def _add_limits(parser: ArgumentParser) -> None:
    add = _adder(parser.add_argument_group("Limits: if one of them is passed, the exit status is 1"))
    add(
        "--max-p99-ms",
        type=float,
        default=1000.0,
        metavar="N",
        help="99th percentile of all answers together (default: %(default)s)",
    )
    add(
        "--max-failure-ratio",
        type=float,
        default=0.0,
        metavar="N",
        help="share of answers that are failures (default: %(default)s)",
    )
    add(
        "--min-sent-ratio",
        type=float,
        default=0.95,
        metavar="N",
        help="share of the planned requests that was sent (default: %(default)s)",
    )


def _adder(group: _ArgumentGroup) -> Callable[..., None]:
    """Return ``add_argument`` of *group* that gives ``--an-option`` the variable ``LOADTEST_AN_OPTION``."""

    def add(option: str, **settings: Any) -> None:  # noqa: ANN401
        variable = "LOADTEST_" + option.removeprefix("--").replace("-", "_").upper()
        # Locust's parser is one of configargparse, which reads variables.
        group.add_argument(option, env_var=variable, **settings)

    return add
