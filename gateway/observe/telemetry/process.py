"""CPU, memory and files of this process, by prometheus_client's ProcessCollector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import ProcessCollector
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

SUPERVISOR: Final = "supervisor"
"""The value of the label ``process`` of the parent of several processes; theirs are their numbers."""


class OwnProcess(Collector):
    """The metrics of this process, with its name as the label ``process`` if there are several.

    The processes are not added up: each handles reviews in one thread, and a sum of CPU times would hide that
    one of them uses a whole CPU.
    """

    def __init__(self, process: str = "") -> None:
        self._labels = {"process": process} if process else {}
        self._collector = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """Yield the families; none without ``/proc``."""
        for family in self._collector.collect():
            family.samples = [sample._replace(labels=self._labels) for sample in family.samples]
            yield family
