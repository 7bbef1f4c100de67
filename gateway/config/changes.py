"""Log messages about a configuration that comes into force."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gateway.config.model import summary

if TYPE_CHECKING:
    from gateway.config.model import Config

log = logging.getLogger(__name__)

_FIXED_AT_START: Final = ("listen", "admin_listen", "processes")


def log_change(old: Config | None, new: Config, *, has_new_files: bool) -> None:
    """Log what is to be known about *new*, which replaces *old*; None: it is the first.

    With *has_new_files* all warnings are logged, otherwise those that *old* does not have.
    """
    for name in _FIXED_AT_START:
        if old is not None and getattr(new.gateway, name) != getattr(old.gateway, name):
            log.warning("GatewayConfiguration: %s changed, which takes effect at the next start", name)
    for warning in new.warnings:
        if old is None or has_new_files or warning not in old.warnings:
            log.warning("configuration warning: %s", warning)
    if old is not None:
        log.info("configuration reloaded: %s", summary(new))
