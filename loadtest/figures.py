"""What pages say about the reports for a reader who decides: sentences, small tables and the chart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from loadtest.chart import Bar, Panel, chart
from loadtest.report import markdown_table
from loadtest.result_files import BENCH, COMMANDS, NoReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadtest.chart import Colour
    from loadtest.result_files import Reports, Table

CREATES: Final = "Pod creates"
ROLLOUTS: Final = "Rollouts"
TARGETS: Final = "Targets"
NOTHING: Final = "no webhook"
ONE: Final = "1 Go webhook, mutating"
TEN: Final = "10 Go webhooks, mutating"
BEHIND: Final = "gateway, 10 mutating, Go worker"
FRONT_END: Final = "front end alone"
"""How the rows begin that show the limit of a gateway, which nobody can use."""
PER_S: Final = "per second"
ADDED: Final = "added"
CPU: Final = ("API server, CPU a create", "webhook, or gateway and worker")
"""The columns that together are the CPU of a create."""
ENGINES: Final = {
    "V1": "V1, one validating policy; connections: 16",
    "V4": "V4, four validating policies; connections: 16",
    "V10": "V10, ten validating policies; connections: 16",
    "M4": "M4, four policies that each change the Pod; connections: 16",
}
"""Columns of the table of engines, and the sections of the report."""
FLOOR: Final = "floor: the gateway's front end, fixed answer"
RATES: Final = (250, 500, 1000)
REAL: Final = "Real policies, workers in several languages"
DOCUMENTS: Final = "ValidatingAdmissionPolicies of three validations"
COSTS: Final = (
    (REAL, "floor, the same review", "front end alone, fixed answer"),
    (REAL, "V1, Python worker", "1 policy, Python worker"),
    (REAL, "V4, Python worker", "4 policies, Python worker"),
    (REAL, "V10, Python worker", "10 policies, Python worker"),
    (REAL, "M4, Python worker", "4 policies that each change the Pod, Python worker"),
    (DOCUMENTS, "1 policy", "1 ValidatingAdmissionPolicy of 3 validations"),
    (DOCUMENTS, "10 policies", "10 ValidatingAdmissionPolicies of 3 validations"),
    (
        DOCUMENTS,
        "10 MutatingAdmissionPolicies that each change the Pod",
        "10 MutatingAdmissionPolicies that each change the Pod",
    ),
)
"""Section and row of the benchmark, and what the row is called for its reader."""
JUDGED: Final[Mapping[str, str]] = {
    BENCH: "The benchmark",
    "peers": "Beside other engines",
    "api-server": "Before an API server",
    "rollout": "Rollouts",
}
"""The kinds of reports that have targets, in words."""
_MACHINE: Final = re.compile(r"^- (.+, (\d+) cores?, .+)$", re.MULTILINE)
_DAY: Final = re.compile(r"^- (\d{4}-\d\d-\d\d) ", re.MULTILINE)


def summary(reports: Reports) -> str:
    """Return three sentences: what ten policies cost an API server, what one costs, against what."""
    table = reports.table("api-server", CREATES)
    per_s = {title: table.cell(title, PER_S) for title in (NOTHING, ONE, TEN, BEHIND)}
    added = {title: table.cell(title, ADDED).lstrip("+") for title in (ONE, TEN, BEHIND)}
    machine, cores, day = _where(reports, "api-server")
    return (
        f"Ten mutating webhooks take an API server from {per_s[NOTHING]} Pod creates a second to "
        f"{per_s[TEN]}, and add {added[TEN]} to a create; behind the gateway the same ten take it to "
        f"{per_s[BEHIND]}, and add {added[BEHIND]}.\n"
        f"One webhook that the API server calls itself takes it to {per_s[ONE]}, and adds {added[ONE]}.\n"
        f"All of them return at once and are written in Go; API server, etcd, clients, webhooks, gateway and "
        f"worker share {cores} cores ({machine}, {day})."
    )


def price(reports: Reports) -> str:
    """Return how many webhooks behind the gateway cost the CPU of one that the API server calls itself."""
    one, ten, behind = (_added_cpu_ms(reports, title) for title in (ONE, TEN, BEHIND))
    table = reports.table("api-server", CREATES)
    waits = ", ".join(table.cell(title, ADDED).lstrip("+") for title in (ONE, TEN, BEHIND))
    machine, cores, day = _where(reports, "api-server")
    return (
        f"**{10 * one / behind:.0f} webhooks for the price of one.** CPU that webhooks add to a Pod create: "
        f"{one:.2f} ms for one, {ten:.2f} ms for ten, {behind:.2f} ms for the same ten behind the gateway.\n"
        f"What the client waits longer: {waits} ({cores} cores, {machine}, {day}). With one webhook the "
        "gateway is only a step more."
    )


def creates(reports: Reports) -> str:
    """Return the table of creates without the columns and rows that only contributors need."""
    table = reports.table("api-server", CREATES)
    columns = (PER_S, "of 1 Go webhook", "one create, p50", ADDED)
    titles = ("Pod creates, dry run", PER_S, "of one Go webhook's", "one create, median", ADDED)
    rows = [
        (title, *(table.cell(title, column) for column in columns))
        for title in table.titles
        if not title.startswith(FRONT_END)
    ]
    return markdown_table(titles, rows, left=(0,))


def price_chart(reports: Reports) -> str:
    """Return the chart of the CPU that webhooks add to a create: one, ten, and ten behind the gateway."""
    shown = {ONE: "1 webhook", TEN: "10 webhooks", BEHIND: "10 behind the gateway"}
    values = {title: _added_cpu_ms(reports, title) for title in shown}
    bars = [
        Bar(label, values[title], f"{values[title]:.2f} ms", _colour(title)) for title, label in shown.items()
    ]
    title = "CPU that webhooks add to one Pod create"
    return chart(title, [Panel(f"{title}; less is better", bars)])


def creates_chart(reports: Reports) -> str:
    """Return the chart of mutating policies before an API server."""
    table = reports.table("api-server", CREATES)
    shown = [
        title
        for title in table.titles
        if (title == NOTHING or "utating" in title) and not title.startswith(FRONT_END)
    ]
    _, cores, _ = _where(reports, "api-server")
    return chart(
        "What ten mutating policies cost an API server",
        [
            _panel(table, shown, PER_S, f"Pod creates a second, {cores} cores; more is better"),
            _panel(table, shown, ADDED, "Added to the median of one create; less is better"),
        ],
    )


def rollouts_chart(reports: Reports) -> str:
    """Return the chart of rollouts."""
    table = reports.table("rollout", ROLLOUTS)
    shown = [title for title in table.titles if not title.startswith(FRONT_END)]
    title = "Time of a rollout, in multiples of one without webhooks"
    return chart(title, [_panel(table, shown, "times no webhook", f"{title}; less is better")])


def costs(reports: Reports) -> str:
    """Return CPU and rate of reviews by number of policies; rows that the reports lack are left out."""
    rows = []
    for heading, title, called in COSTS:
        table = reports.table(BENCH, heading)
        if title in table.titles:
            columns = ("gateway CPU, us", "times", "worker CPU, us", "reviews/s")
            rows.append((called, *(table.cell(title, column) for column in columns)))
    headings = ("a review of a Pod of 6 KB", "gateway CPU, µs", "times the front end", "worker CPU, µs")
    return markdown_table((*headings, "reviews/s"), rows, left=(0,))


def engines(reports: Reports) -> str:
    """Return reviews a second and CPU of a review of each engine that was measured."""
    tables = {name: reports.table("peers", heading) for name, heading in ENGINES.items()}
    titles = dict.fromkeys(title for table in tables.values() for title in table.titles if title != FLOOR)
    rows = [
        (
            title,
            *(
                f"{table.cell(title, 'reviews/s')} ({table.cell(title, 'CPU, us')})"
                if title in table.titles
                else ""
                for table in tables.values()
            ),
        )
        for title in titles
    ]
    return markdown_table(("reviews/s (CPU, µs)", *tables), rows, left=(0,))


def ten_policies(reports: Reports) -> str:
    """Return what ten validating policies cost before an API server, for each engine that was measured."""
    table = reports.table("api-server-peers", "Real policies")
    columns = ("policies", "of no webhook", ADDED, "API server, CPU a create", "peer, or gateway and worker")
    places = [table.columns.index(column) for column in columns]
    found = [(row[0], [row[place] for place in places]) for row in table.rows]
    rows = [(title, *cells) for title, (policies, *cells) in found if policies == "V10"]
    titles = ("ten validating policies", "creates, of those without", "one create, longer by")
    return markdown_table((*titles, "CPU of the API server", "CPU of the engine"), rows, left=(0,))


def rollouts(reports: Reports) -> str:
    """Return the time of rollouts, the CPU of a Pod, and what could not be measured."""
    table = reports.table("rollout", ROLLOUTS)
    columns = (
        "all Pods run after",
        "times no webhook",
        "API server, CPU a Pod",
        "webhook, or gateway and worker",
    )
    rows = [
        (title, *(table.cell(title, column) for column in columns))
        for title in table.titles
        if not title.startswith(FRONT_END)
    ]
    titles = ("rollout of 2,000 Pods", "all run after", "times no webhook", "API server, CPU a Pod")
    section = reports.section("rollout", ROLLOUTS).splitlines()
    left_out = [line for line in section if line and not line.startswith("|")]
    return "\n\n".join(
        [markdown_table((*titles, "webhook, or gateway and worker"), rows, left=(0,)), *left_out]
    )


def rates(reports: Reports) -> str:
    """Return the latency at the rates that API servers send."""
    rows = []
    for rate in RATES:
        table = reports.table(BENCH, f"Open loop of {rate:,} reviews a second")
        floor, four = f"floor, {rate:,}/s", f"4 policies, {rate:,}/s"
        cells = [table.cell(title, column) for column in ("median ms", "p99 ms") for title in (floor, four)]
        rows.append((f"{rate:,}/s", *cells))
    headings = ("reviews", "front end alone, median ms", "4 policies, median ms")
    return markdown_table((*headings, "front end alone, p99 ms", "4 policies, p99 ms"), rows, left=(0,))


def memory(reports: Reports) -> str:
    """Return a sentence about the memory of a process."""
    table = reports.table("soak", "Checks")
    idle, used, growth, count = (
        table.cell(title, "found")
        for title in (
            "memory of the idle gateway process, MiB",
            "memory of the gateway process, MiB",
            "its growth over the last half, percent",
            "reviews that ended; planned",
        )
    )
    return (
        f"A process of the gateway has {idle} MiB of resident memory at the start and {used} MiB "
        f"after {count} reviews; over the last half of them it grew by {growth} %."
    )


def targets(reports: Reports) -> str:
    """Return the tables of targets, with the commands that judge them."""
    return "\n\n".join(
        f"{what} (`{COMMANDS[kind]}`):\n\n{reports.section(kind, TARGETS)}"
        for kind, what in JUDGED.items()
        if _verdicts(reports, kind)
    )


def verdicts(reports: Reports) -> str:
    """Return how many targets are met, missed and not judged."""
    found = [verdict for kind in JUDGED for verdict in _verdicts(reports, kind)]
    met, missed = found.count("pass"), found.count("FAIL")
    others = len(found) - met - missed
    return (
        f"Of {len(found)} [targets](benchmarks.md#targets) {met} are met and {missed} are missed; "
        f"{others} cannot be judged on this machine."
    )


def runs(reports: Reports) -> str:
    """Return when and on which machine each kind of report was measured."""
    rows = []
    for kind, command in COMMANDS.items():
        try:
            machine, _, day = _where(reports, kind)
        except NoReport:
            continue
        rows.append((f"`loadtest/results/{reports.newest(kind).name}`", f"`{command}`", day, machine))
    return markdown_table(("report", "command", "measured", "machine"), rows, left=(0, 1, 2, 3))


FIGURES: Final[Mapping[str, Callable[[Reports], str]]] = {
    function.__name__: function
    for function in (
        *(summary, price, creates, costs, engines, ten_policies, rollouts),
        *(rates, memory, targets, verdicts, runs),
    )
}
"""By the name in a page."""
CHARTS: Final[Mapping[str, Callable[[Reports], str]]] = {
    "docs/images/price.svg": price_chart,
    "docs/performance.svg": creates_chart,
    "docs/rollouts.svg": rollouts_chart,
}
"""By file."""


def _panel(table: Table, titles: list[str], column: str, title: str) -> Panel:
    bars = [
        Bar(_short(each), table.number(each, column), text.lstrip("+"), _colour(each))
        for each in titles
        if (text := table.cell(each, column))
    ]
    return Panel(title, bars)


def _added_cpu_ms(reports: Reports, title: str) -> float:
    table = reports.table("api-server", CREATES)
    with_webhooks, without = (sum(table.number(row, column) for column in CPU) for row in (title, NOTHING))
    return with_webhooks - without


def _short(title: str) -> str:
    """Return the title of a row without the phase, which the chart has in its own."""
    return title.replace(", mutating", "").replace("10 mutating", "10 policies")


def _colour(title: str) -> Colour:
    if title == NOTHING:
        return "none"
    if title.startswith("gateway"):
        return "gateway"
    return "webhook" if "Go webhook" in title else "other"


def _where(reports: Reports, kind: str) -> tuple[str, str, str]:
    """Return the processor, the number of cores and the day of the newest report of *kind*.

    Raises:
        NoReport: there is none.
        LookupError: the report does not say it.
    """
    file = reports.newest(kind)
    text = file.read_text()
    machine, day = _MACHINE.search(text), _DAY.search(text)
    if machine is None or day is None:
        raise LookupError(f"{file}: expected a line with processor and cores, and one with the date")
    return machine[1].partition(", ")[0], machine[2], day[1]


def _verdicts(reports: Reports, kind: str) -> list[str]:
    """Return the verdicts on the targets of *kind*; none if it has no targets."""
    try:
        table = reports.table(kind, TARGETS)
    except LookupError:
        return []
    return [row[table.columns.index("verdict")].partition(":")[0] for row in table.rows]
