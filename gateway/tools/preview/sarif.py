"""A preview as SARIF 2.1.0, for code scanning.

Rules are all webhooks of the configuration, also those without findings, because an alert belongs to a rule.
A run without findings is written too: otherwise old alerts would stay open.

Source: OASIS SARIF 2.1.0, sections 3.11 (messages), 3.27 (results), 3.30 (regions);
github/docs content/code-security/reference/code-scanning/sarif-support-for-code-scanning.md (bounds, and
which members are read).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from admission_gateway_worker.text import printable
from gateway import __version__
from gateway.tools.forecast.findings import RULES
from gateway.tools.preview.model import OWN_RULES, UNREADABLE
from gateway.tools.preview.sources import below_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.preview.forecast import Forecast
    from gateway.tools.preview.manifests import Place, Unreadable
    from gateway.tools.preview.model import Level, Previewed
    from gateway.tools.preview.report import Listed, Totals

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_RESULTS: Final = 5000
"""Results that code scanning shows. It refuses a run with more than 25,000."""
_MAX_RULES: Final = 20_000
_MAX_CHARS: Final = 4000
_MAX_DESCRIPTION: Final = 1000
_LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")
_LINK: Final = re.compile(r"[\\\[\]]")
_PHASES: Final = {"mutate": "mutating", "validate": "validating"}


class SarifOutput:
    """A file with one run."""

    def __init__(self, file: Path, config: Config, forecast: Forecast | None = None) -> None:
        self._file = file
        self._rules = list(_rules(config, () if forecast is None else RULES.items()))
        self._index = {rule["id"]: index for index, rule in enumerate(self._rules)}
        self._results: dict[Level, list[dict[str, Any]]] = {level: [] for level in _LEVELS}
        self._left_out = 0
        self._notifications: list[dict[str, Any]] = []
        if forecast is not None:
            self._add_forecast(forecast)

    def _add_forecast(self, forecast: Forecast) -> None:
        self._left_out += forecast.left_out
        fingerprints: Counter[str] = Counter()
        for one in forecast.findings:
            finding, place = one
            text = f"Kubernetes 1.{forecast.kubernetes}: {finding.message}\n{finding.where}"
            if place is None:
                self._notify(finding.level, text)
                continue
            fingerprint = one.fingerprint()
            fingerprints[fingerprint] += 1
            number = fingerprints[fingerprint]
            suffix = f":{number}" if number > 1 else ""
            self._add(finding.rule, finding.level, text, place, fingerprint + suffix)

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Take the findings of an object of the input."""
        del found
        for one in listed:
            finding = one.finding
            text = f"{finding.message}\n{_about(one)}"
            self._add(finding.rule, finding.level, text, finding.place, one.fingerprint)

    def add_unreadable(self, found: Unreadable) -> None:
        """Take what is no object."""
        self._add(UNREADABLE, "error", found.message, found.place, found.fingerprint())

    def end(self, totals: Totals) -> None:
        """Write the file."""
        del totals
        results = [one for level in _LEVELS for one in self._results[level]]
        left_out = self._left_out + max(0, len(results) - MAX_RESULTS)
        invocation: dict[str, Any] = {"executionSuccessful": True}
        if left_out:
            text = f"{left_out:,} further results are left out, those of the lowest level first"
            self._notifications.append({"level": "warning", "message": {"text": text}})
        if self._notifications:
            invocation["toolExecutionNotifications"] = self._notifications
        driver = {
            "name": "admission-gateway",
            "semanticVersion": __version__,
            "informationUri": "https://admission-gateway.io",
            "rules": self._rules,
        }
        run = {
            "tool": {"driver": driver},
            "columnKind": "unicodeCodePoints",
            "invocations": [invocation],
            "results": results[:MAX_RESULTS],
        }
        document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
        self._file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")

    def _notify(self, level: Level, text: str) -> None:
        """Add *text*, which is about no file: code scanning takes no result without a place."""
        if len(self._notifications) < MAX_RESULTS:
            self._notifications.append({"level": level, "message": {"text": _text(text)}})
        else:
            self._left_out += 1

    def _add(self, rule: str, level: Level, text: str, place: Place, fingerprint: str) -> None:
        if not place.is_found:
            self._notify(level, f"{place}: {rule}: {text}")
            return
        if len(self._results[level]) >= MAX_RESULTS:
            self._left_out += 1
            return
        region = {"startLine": place.line, "startColumn": place.column, "endColumn": place.end_column}
        uri = quote(from_here(place.file), safe="/", errors="replace")
        location = {"artifactLocation": {"uri": uri}, "region": region}
        self._results[level].append(
            {
                "ruleId": rule,
                **({"ruleIndex": self._index[rule]} if rule in self._index else {}),
                "level": level,
                "message": {"text": _text(text)},
                "locations": [{"physicalLocation": location}],
                "partialFingerprints": {"primaryLocationLineHash": fingerprint},
            }
        )


def from_here(file: str) -> str:
    """Return the path of *file*: if it is in the working directory relative to that, links resolved."""
    return below_here(file) or Path(file).as_posix()


def _rules(config: Config, more: Iterable[tuple[str, str]]) -> Sequence[dict[str, Any]]:
    """Return a rule for each webhook of *config*, for each finding of the preview's own, and for *more*."""
    rules: dict[str, dict[str, Any]] = {}
    for webhook in config.webhooks[:_MAX_RULES]:
        rules.setdefault(f"{webhook.configuration}/{webhook.name}", _rule_of(webhook))
    for name, text in OWN_RULES.items():
        rules.setdefault(name, _rule(name, text, "See the page Preview of the documentation."))
    for name, text in more:
        rules.setdefault(name, _rule(name, text, "See the page Forecast of the documentation."))
    return list(rules.values())


def _rule_of(webhook: Webhook) -> dict[str, Any]:
    name = f"{webhook.configuration}/{webhook.name}"
    about = f"The {_PHASES[webhook.phase]} webhook or policy {webhook.name} of {webhook.configuration}."
    return _rule(
        name, about, "Change the object so that the policy allows it, or ask the owner of the policy."
    )


def _rule(name: str, about: str, advice: str) -> dict[str, Any]:
    shown = printable(about, _MAX_DESCRIPTION)
    return {
        "id": name,
        "shortDescription": {"text": shown},
        "fullDescription": {"text": shown},
        "help": {"text": advice},
        "defaultConfiguration": {"level": "error"},
    }


def _about(listed: Listed) -> str:
    """Return which objects a finding is about."""
    owner = listed.about.created_from
    created = f", created from {owner}" if owner is not None else ""
    also = f" and {', '.join(listed.also)}" if listed.also else ""
    field = f", field {listed.finding.path}" if listed.finding.path else ""
    return f"{listed.about.name}{created}{also}{field}"


def _text(text: str) -> str:
    """Return *text* as a plain text message: links in it, which have brackets, stay text."""
    lines = [printable(line, _MAX_CHARS) for line in text[: 2 * _MAX_CHARS].split("\n")]
    return _LINK.sub(lambda found: f"\\{found[0]}", "\n".join(lines))
