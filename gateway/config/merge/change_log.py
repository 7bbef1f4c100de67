"""What the log says about a configuration that comes into force."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.merge.model import has_policies, summary

if TYPE_CHECKING:
    from gateway.config.merge.model import Config

log = logging.getLogger(__name__)

_FIXED_AT_START: Final = ("listen", "admin_listen", "processes")


def log_change(old: Config | None, new: Config, *, has_new_files: bool) -> None:
    """Log what is to be known about *new*, which replaces *old*, or is the first if that is None.

    With *has_new_files* all warnings are logged, otherwise those that *old* does not have.
    """
    for name in _FIXED_AT_START:
        if old is not None and getattr(new.gateway, name) != getattr(old.gateway, name):
            log.warning("GatewayConfiguration: %s changed, which takes effect at the next start", name)
    for warning in new.warnings:
        if old is None or has_new_files or warning not in old.warnings:
            log.warning("configuration warning: %s", warning)
    before = set() if old is None or has_new_files else _reasons_to_stay(old)
    for kind, policy, reason in sorted(_reasons_to_stay(new) - before):
        log.warning("policy stays in the gateway: %s %s: %s", kind, shown(policy), reason)
    if old is not None:
        log.info("configuration reloaded: %s", summary(new))


def _reasons_to_stay(config: Config) -> set[tuple[str, str, str]]:
    """Return kind and name of each policy that the API server is to evaluate, with each reason why not."""
    if not has_policies(config):
        return set()
    # Imported late: it needs the evaluation of expressions.
    from gateway.config.merge.placement import asked_placements

    asked = (one for one in asked_placements(config) if one.wanted == "APIServer")
    return {(one.kind, one.name, reason) for one in asked for reason in one.reasons}
