"""promtool, and a Prometheus server on loopback."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.e2e.binaries import monitoring_tool
from tests.kit import PATIENCE_S
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRAPED_EVERY: Final = "1s"


def promtool(*arguments: str | Path, standard_input: str = "") -> tuple[int, str]:
    """Return the exit status of promtool and everything that it prints."""
    done = subprocess.run(
        [monitoring_tool("promtool"), *map(str, arguments)],
        input=standard_input,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


class Prometheus:
    """A Prometheus server with exemplars that scrapes admin ports; a context manager."""

    def __init__(self, folder: Path, rules: Path, targets: Sequence[dict[str, Any]]) -> None:
        """Scrape *targets*, each an entry of ``static_configs``, into *folder*."""
        config = {
            "global": {"scrape_interval": SCRAPED_EVERY, "evaluation_interval": SCRAPED_EVERY},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "admission-gateway", "static_configs": list(targets)}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = (folder / "prometheus.log").open("w")
        self._child = subprocess.Popen(
            [
                monitoring_tool("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                "--enable-feature=exemplar-storage",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._address = ""

    def __enter__(self) -> Prometheus:
        eventually(self._has_started)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.send_signal(signal.SIGTERM)
        self._child.wait(PATIENCE_S)
        self._log.close()

    def _has_started(self) -> bool:
        log = Path(self._log.name).read_text()
        assert self._child.poll() is None, log
        found = re.search(r'msg="Listening on".* address=(127\.0\.0\.1:\d+)', log)
        if found is not None:
            self._address = found[1]
        return found is not None and "Server is ready to receive web requests" in log

    def get(self, path: str, **parameters: str) -> Any:
        """Return ``data`` of an answer of the HTTP API."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def exemplars(self, query: str) -> set[tuple[str, str]]:
        """Return the name of the series and the trace id of each exemplar of *query*."""
        return {
            (one["seriesLabels"]["__name__"], exemplar["labels"]["trace_id"])
            for one in self.get("query_exemplars", query=query, start="0", end="9999999999")
            for exemplar in one["exemplars"]
        }

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series of an instant query."""
        return [
            (one["metric"], float(one["value"][1])) for one in self.get("query", query=expression)["result"]
        ]
