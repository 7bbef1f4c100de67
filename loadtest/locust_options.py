"""The options of the Locust users, each also an environment variable, and the server that they name."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from loadtest.locust_verdict import Limits

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ArgumentGroup
    from collections.abc import Callable

CORPUS: Final = Path(__file__).parent / "corpus"
PATH: Final = "/validate"
AGENT: Final = "admission-gateway-loadtest"
GET_TIMEOUT_S: Final = 10.0


def add_options(parser: ArgumentParser) -> None:
    """Add the options to Locust's *parser*."""
    _add_load(parser)
    _add_access(parser)
    _add_limits(parser)


def check(options: Namespace, *, distributed: bool) -> None:
    """Check that *options* do not contradict each other.

    Raises:
        ValueError: they do.
    """
    if options.via == "apiserver":
        if options.path:
            raise ValueError("--path is for --via direct: an API server calls the registered webhooks")
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
        help=f"direct: the gateway's path, such as /validate/NAME; may be repeated (default: {PATH})",
    )
    add(
        "--namespace",
        metavar="NAME",
        help="apiserver: where objects are created (default: their own namespace)",
    )
    add(
        "--persist",
        action="store_true",
        help="apiserver: store the objects, and delete them at the end (default: create with dryRun=All)",
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
        help="end the run after N answers, if --run-time does not end it before",
    )


def _add_access(parser: ArgumentParser) -> None:
    add = _adder(parser.add_argument_group("Access to the gateway or API server"))
    add(
        "--ca-file",
        metavar="FILE",
        help="PEM certificates of the authorities that verify the server",
    )
    add("--insecure", action="store_true", help="do not verify the API server's certificate")
    add("--token-file", metavar="FILE", help="file with a bearer token")
    add("--client-cert", metavar="FILE", help="PEM client certificate")
    add("--client-key", metavar="FILE", help="its key")


def _add_limits(parser: ArgumentParser) -> None:
    add = _adder(parser.add_argument_group("Limits: if one is exceeded, the exit status is 1"))
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
        help="share of the planned requests that must be sent (default: %(default)s)",
    )


def _adder(group: _ArgumentGroup) -> Callable[..., None]:
    """Return ``add_argument`` of *group* with the variable ``LOADTEST_AN_OPTION`` for ``--an-option``."""

    def add(option: str, **settings: Any) -> None:  # noqa: ANN401
        variable = "LOADTEST_" + option.removeprefix("--").replace("-", "_").upper()
        # Locust's parser comes from configargparse, which reads environment variables.
        group.add_argument(option, env_var=variable, **settings)

    return add


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and the credentials for it."""

    host: str
    """``https://HOST:PORT``, optionally with a path prefix."""
    verify: bool
    tls: ssl.SSLContext
    """One for all users: a new context reads the system's root certificates, which delays requests."""
    headers: dict[str, str]

    @classmethod
    def of(cls, options: Namespace) -> Self:
        """Return the target of the command line *options*.

        A gateway's certificate is verified only with ``--ca-file``: it gets nothing secret. An API server
        gets credentials and is therefore verified, except with ``--insecure``.

        Raises:
            ValueError: the host is missing, or a certificate, key or token cannot be read.
        """
        if not options.host:
            raise ValueError("expected --host https://HOST:PORT")
        if bool(options.client_cert) != bool(options.client_key):
            raise ValueError("expected --client-cert and --client-key together")
        if options.ca_file and options.insecure:
            raise ValueError("expected --ca-file or --insecure, found both")
        verify = not options.insecure and bool(options.ca_file or options.via == "apiserver")
        headers = {"User-Agent": AGENT, "Content-Type": "application/json", "Accept": "application/json"}
        if options.token_file:
            headers["Authorization"] = f"Bearer {_token(options.token_file)}"
        return cls(options.host.rstrip("/"), verify, _tls(options, verify=verify), headers)

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at *path*.

        Raises:
            ValueError: there is no answer, or it is not a JSON object.
        """
        request = urllib.request.Request(self.host + path, headers=self.headers)
        # As for the load, proxies of the environment are not used.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.tls)
        )
        try:
            with opener.open(request, timeout=GET_TIMEOUT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(f"GET {self.host}{path}: HTTP status {error.code}") from None
        except (OSError, ValueError) as error:
            raise ValueError(f"GET {self.host}{path}: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"GET {self.host}{path}: expected a JSON object")
        return found


def _token(file: str) -> str:
    try:
        token = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        raise ValueError(f"--token-file: {error}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"--token-file {file}: expected one bearer token")
    return token


def _tls(options: Namespace, *, verify: bool) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    try:
        if options.ca_file:
            tls.load_verify_locations(options.ca_file)
        elif verify:
            tls.load_default_certs()
    except OSError as error:
        raise ValueError(f"--ca-file {options.ca_file}: {error}") from None
    try:
        if options.client_cert:
            tls.load_cert_chain(options.client_cert, options.client_key)
    except OSError as error:
        raise ValueError(f"--client-cert {options.client_cert}: {error}") from None
    return tls
