"""The command line of ``serve``: the files of the configuration, and overrides of its settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ConfigError, Problem
from gateway.config.kinds.addresses import is_loopback_address, parse_host_port
from gateway.config.merge.load import fingerprint, load, require_webhooks
from gateway.config.merge.model import Pinned
from gateway.config.merge.read import read
from gateway.server.history import History, HistoryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.config.merge.model import Config

DEV_CONFIG: Final = Path(__file__).parents[1] / "dev.yaml"


class PinError(ConfigError):
    """The gateway is pinned to a kept configuration that cannot be used."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of ``serve``. An option that is None leaves the configuration's value."""

    config: tuple[Path, ...] = ()
    dev: bool = False
    """Start with a sample configuration and a development certificate."""
    state: Path = field(default_factory=lambda: Path(".admission-gateway"))
    """Folder for the development certificate, and for ``history``."""
    keeps_history: bool = False
    """Whether the configurations that were in force are kept in ``state``."""
    listen: str | None = None
    admin_listen: str | None = None
    processes: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    allow_empty: bool = False
    """Accept a configuration without webhooks."""

    @property
    def sources(self) -> Sequence[Path]:
        """The files and folders that hold the configuration."""
        return (DEV_CONFIG,) if self.dev and not self.config else self.config

    def load(self) -> Config:
        """Return the configuration with the overrides applied.

        Raises:
            ConfigError: it cannot be used.
        """
        config = self._pinned() or load(
            self.sources, filter(None, (self.tls_cert, self.tls_key, self.client_ca))
        )
        return replace(config, gateway=self._override(config.gateway))

    def load_first(self) -> Config:
        """As :meth:`load`, at the start: a pin that cannot be used is a warning, and the files are read."""
        try:
            return self.load()
        except PinError as error:
            config = replace(self, keeps_history=False).load()
            return replace(config, warnings=(*error.problems, *config.warnings))

    @property
    def history(self) -> History | None:
        """The configurations that were in force. None if they are not kept."""
        return History(self.state) if self.keeps_history else None

    def _pinned(self) -> Config | None:
        """Return the configuration to which the gateway is pinned, or None.

        Raises:
            PinError: there is a pin, and its configuration cannot be used.
        """
        pin = None if self.history is None else self.history.pin()
        if self.history is None or pin is None:
            return None
        where = f"pinned to {pin.digest[:12]} since {pin.since}"
        try:
            kept = self.history.load(pin.digest)
            config = read(kept.documents)
        except HistoryError as error:
            raise PinError([Problem(where, "", f"the kept configuration cannot be used: {error}")]) from None
        except ConfigError as error:
            raise PinError([Problem(where, "", str(one)) for one in error.problems]) from None
        message = (
            "changes of files and custom resources wait; `admission-gateway rollback --release` ends this"
        )
        return replace(
            config,
            pinned=Pinned(pin.digest, pin.since, kept.resources),
            warnings=(Problem(where, "", message), *config.warnings),
        )

    def require_webhooks(self, config: Config, in_force: Config | None) -> None:
        """Refuse a *config*, with its custom resources, that has no webhooks, unless that is allowed.

        *in_force* is the configuration before; None at the start.

        Raises:
            ConfigError: it has none.
        """
        if not self.allow_empty:
            require_webhooks(config, self.sources, in_force)

    def require_webhooks_in_files(self, config: Config, in_force: Config | None) -> None:
        """As :meth:`require_webhooks`, for a *config* of files alone, which custom resources may complete."""
        kubernetes = config.gateway.kubernetes
        if kubernetes is None or not kubernetes.custom_resources:
            self.require_webhooks(config, in_force)

    def fingerprint(self) -> object:
        """Return a value that changes with the configuration's files; cheap enough to call every second."""
        history = self.history
        return fingerprint(self.sources), None if history is None else history.fingerprint()

    def _override(self, settings: GatewaySettings) -> GatewaySettings:
        tls = settings.tls
        if self.tls_cert is not None or self.tls_key is not None:
            tls = replace(tls, cert_file=self.tls_cert, key_file=self.tls_key)
        if self.client_ca is not None:
            tls = replace(tls, client_ca_file=self.client_ca)
        if tls.cert_file is None and self.dev:
            from gateway.server.serving.devcert import make_development_certificate

            try:
                cert_file, key_file = make_development_certificate(self.state)
            except OSError as error:
                where = Problem("", "", f"the state folder {self.state} cannot be written: {error.strerror}")
                raise ConfigError([where]) from None
            tls = replace(tls, cert_file=cert_file, key_file=key_file)
        listen = self.listen or self._address(settings.listen)
        admin_listen = self.admin_listen or self._address(settings.admin_listen)
        if listen == admin_listen and not listen.endswith(":0"):
            raise ConfigError([Problem("", "", f"--listen and --admin-listen are both {listen}")])
        return replace(
            settings,
            tls=tls,
            listen=listen,
            admin_listen=admin_listen,
            processes=self.processes or settings.processes,
        )

    def _address(self, address: str) -> str:
        """Return *address* of the configuration; a development gateway has its port on loopback."""
        if not self.dev or is_loopback_address(address):
            return address
        return f"127.0.0.1:{parse_host_port(address)[1]}"
