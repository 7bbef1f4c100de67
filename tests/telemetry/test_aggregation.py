"""The sum of the metrics of processes that start and end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.telemetry.aggregation import ProcessMetrics
from gateway.observe.telemetry.exposition import OPENMETRICS, expose
from gateway.observe.telemetry.process import OwnProcess


class Process:
    """A process with metrics."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.registry = CollectorRegistry()
        self.done = Counter("done", "What was done", ("kind",), registry=self.registry)
        self.took = Histogram("took", "How long it took", buckets=(1, 2), registry=self.registry)
        self.open = Gauge("open", "What is open", registry=self.registry)
        self.open.set(1)

    def work(self, number: int) -> None:
        self.done.labels("a").inc(number)
        for _ in range(number):
            self.took.observe(1.5)

    def exposition(self) -> bytes:
        return expose(self.registry, OPENMETRICS)[0]


def values(exposition: bytes) -> dict[str, float]:
    """Return the values of all series except creation times."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(exposition.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def exemplars(exposition: bytes) -> dict[str, tuple[str, float]]:
    """Return trace id and value of the exemplars, by the bound of the bucket."""
    return {
        sample.labels["le"]: (sample.exemplar.labels["trace_id"], sample.exemplar.value)
        for family in openmetrics_families(exposition.decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None
    }


def scraped(metrics: ProcessMetrics, *processes: Process) -> dict[str, float]:
    running = {process.pid for process in processes}
    return values(metrics.add({process.pid: process.exposition() for process in processes}, running)[0])


DONE, TOOK, OPEN = "done_total[('kind', 'a')]", "took_count[]", "open[]"


def test_counters_of_ended_processes_stay_and_their_gauges_go() -> None:
    metrics = ProcessMetrics()
    first, second = Process(1), Process(2)
    first.work(5)
    second.work(7)
    assert scraped(metrics, first, second)[DONE] == 12
    third = Process(3)
    third.work(1)
    found = scraped(metrics, second, third)
    assert (found[DONE], found[TOOK], found[OPEN]) == (13, 13, 2)
    second.work(1)
    assert scraped(metrics, second)[DONE] == 14
    assert scraped(metrics)[DONE] == 14
    assert OPEN not in scraped(metrics)


def test_a_process_that_ends_during_a_scrape_counts_once() -> None:
    metrics = ProcessMetrics()
    first = Process(1)
    first.work(5)
    assert values(metrics.add({1: first.exposition()}, set())[0])[DONE] == 5
    assert scraped(metrics)[DONE] == 5


def test_a_scrape_that_ends_late_does_not_count_an_ended_process_again() -> None:
    """Two Prometheus servers scrape at the same time, and a process ends."""
    metrics = ProcessMetrics()
    first, second = Process(1), Process(2)
    first.work(5)
    late = {1: first.exposition(), 2: second.exposition()}
    assert values(metrics.add(late, {2})[0])[DONE] == 5
    assert values(metrics.add(late, {2})[0])[DONE] == 5
    reused = Process(1)
    reused.work(1)
    assert scraped(metrics, reused, second)[DONE] == 6


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.booleans()), max_size=20))
def test_no_counter_ever_falls(steps: list[tuple[int, int, bool]]) -> None:
    """Each step: a process counts, and is perhaps replaced; then there is a scrape."""
    metrics = ProcessMetrics()
    processes = [Process(number) for number in range(3)]
    before: dict[str, float] = {}
    counted = 0
    for pid, (number, work, is_replaced) in enumerate(steps, start=3):
        processes[number].work(work)
        counted += work
        after = scraped(metrics, *processes)
        assert all(after[name] >= value for name, value in before.items() if name != OPEN)
        assert after.get(DONE, 0) == counted
        before = after
        if is_replaced:
            processes[number] = Process(pid)


def test_the_newest_exemplar_of_each_bucket_stays_also_that_of_an_ended_process() -> None:
    metrics = ProcessMetrics()
    first, second = Process(1), Process(2)
    first.took.observe(0.5, {"trace_id": "a"})
    first.took.observe(1.5, {"trace_id": "b"})
    second.took.observe(1.25, {"trace_id": "c"})
    scrape = {process.pid: process.exposition() for process in (first, second)}
    found, content_type = metrics.add(scrape, {1, 2}, OPENMETRICS)
    assert content_type.startswith(OPENMETRICS.decode())
    assert exemplars(found) == {"1.0": ("a", 0.5), "2.0": ("c", 1.25)}
    second.took.observe(7, {"trace_id": "d"})
    found, _ = metrics.add({2: second.exposition()}, {2}, OPENMETRICS)
    assert exemplars(found) == {"1.0": ("a", 0.5), "2.0": ("c", 1.25), "+Inf": ("d", 7)}


def test_processes_are_told_apart_with_their_parent() -> None:
    metrics = ProcessMetrics()
    scrape = {}
    for number in range(2):
        registry = CollectorRegistry()
        registry.register(OwnProcess(str(number)))
        scrape[number] = expose(registry, OPENMETRICS)[0]
    found = values(metrics.add(scrape, {0, 1})[0])
    for name in ("cpu_seconds_total", "resident_memory_bytes", "start_time_seconds", "open_fds", "max_fds"):
        of_name = {key for key in found if key.startswith(f"process_{name}")}
        assert of_name == {f"process_{name}[('process', '{one}')]" for one in ("0", "1", "supervisor")}
