"""Where the commands of README and documentation run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.docs.reader import commands

if TYPE_CHECKING:
    from tests.docs.reader import Block

HERE: Final = "here"
CLUSTER: Final = "cluster"
ADOPTING: Final = "adopting"
"""A cluster without a gateway: tests/e2e/test_adopting.py."""

NOT_RUN: Final[dict[str, str]] = {
    r": make (?!run)": "runs these tests, or takes minutes",
    r"^tests/(e2e|fuzz)/README\.md: ": "runs these tests",
    r"^loadtest/README\.md: ": "minutes of load: tests/loadtest has shorter runs",
    r"^workers/(go|java|rust|typescript)/README\.md: |: pip install": "tests/languages/test_install.py",
    r"^workers/(gatekeeper|kyverno|wasm)/README\.md: ": "tests/docs/test_engine_programs.py",
    r"^deploy/chart/README\.md: ": "docs/install.md installs the chart",
    r"kubectl krew ": "krew is not there; tests/deploy/test_krew.py unpacks the archive as krew does",
    r": docker ": "there is no registry; tests/deploy/test_image.py reads the Dockerfiles",
    r"conformance ": "tests/conformance runs it",
    r" top pods": "there is no metrics-server",
    r"--previous": "the stand-in for the kubelet keeps no earlier logs",
    r"cert-manager\.|certificaterequests|(describe |=Ready )certificate|certs/ca.crt$": "no cert-manager",
    r"^docs/engines\.md: ": "tests/e2e/test_engine_installation.py and tests/docs/test_engines.py run them",
    r"^docs/migrate\.md: |commands.md: admission-gateway (sync|manifests .*--apply)": (
        "for a cluster with webhooks of its own: tests/e2e/test_moving.py"
    ),
    r"policies-not-served\.md: .* --workers": "names of Services are known in Pods only",
    r"lock-outs\.md: admission-gateway check ": "tests/docs/test_lock_outs.py, tests/e2e/test_outages.py",
    r"rollout forget": "for a plan that was removed: tests/e2e/test_rollout_gateways.py",
    r"certificate-expired\.md: (deploy/certificate|kubectl .* create secret)": "run on operate.md",
    r"apply -f deploy/pod-monitor\.yaml": "there is no Prometheus Operator; tests/deploy/test_monitoring.py",
    r": kind ": "there is no Docker; tests/e2e/test_adopting.py has a cluster that stands in",
    r"^docs/platforms\.md: ": "for clusters of providers: tests/e2e/test_platforms.py",
    r"troubleshooting\.md: (admission-gateway (status|check)|kubectl (get ag|describe val|.* logs ))": (
        "for what something is wrong with; tests/e2e/test_troubleshooting.py has the texts of API servers"
    ),
    r"^docs/release\.md: ": "tests/release publishes, and verifies by the commands of the page",
    r"^docs/kubernetes-versions\.md: ": "for the next version of Kubernetes, which is not there yet",
}
"""Commands that are left out, by an expression for ``PAGE: COMMAND``, with the reason."""

WITHOUT_OUTPUT: Final[dict[str, str]] = {
    "audit-incomplete": "a kind that its account may not read, for half an hour",
    "audit-stale": "an audit that stands still: tests/audit",
    "ca-bundle-not-followed": "cert-manager is not there",
    "certificate-expires-soon": "a certificate of some weeks, which is then renewed or refused",
    "configurations-differ": "replicas with other files: tests/e2e/test_default_installation.py",
    "internal-errors": "a bug of the gateway",
    "match-condition-errors": "the expressions are those of the reader",
    "policies-not-served": "the chart does not install it: tests/dispatch/test_policy_mismatch.py",
    "records-dropped": "a load that the cluster of the tests does not carry",
    "rollout-plan-held": "a plan that was removed: tests/e2e/test_rollout_gateways.py",
    "rollout-plan-stopped": "a plan with requests of a day: tests/e2e/test_rollout_gateways.py",
    "rollout-plans-blocked": "states that cannot be written: tests/e2e/test_rollout_plans.py",
    "saturated": "a busy process for ten minutes",
    "watch-disconnected": "an API server that is away, which kubectl needs",
    "watchdog-alerting": "a network without a path: tests/e2e/test_outages.py",
    "workloads-refused-at-restart": "workloads that are older than a policy: tests/audit",
}
"""Runbooks whose commands run without the situation that they are for, with what is missing."""

_CLUSTER: Final = re.compile(
    r"kubectl|\bhelm\b|--cluster\b|--cluster-objects|--context|--server-dry-run|--apply\b|kustomize"
    r"|admission-gateway (audit|sync|watchdog|rollout (?!status --folder))"
)


IN_PARTS: Final = frozenset(
    f"docs/{name}.md"
    for name in ("commands", "decision-log", "lock-outs", "migrate-engines", "preview", "replay")
)
"""Pages whose commands without a cluster run here. Any other page that needs one runs there as a whole."""

ADOPTERS: Final = ("docs/try-in-kind.md", "docs/first-weeks.md")
"""Pages that install the gateway and operate it, in this order."""


def left_out(block: Block, command: str) -> str:
    """Return why *command* of *block* is not run; empty if it is."""
    place = f"{block.page}: {command}".replace("\\\n", " ")
    return next((reason for words, reason in NOT_RUN.items() if re.search(words, place)), "")


def chosen(page: list[Block], where: str) -> list[Block]:
    """Return the blocks of *page* that run *where*, see the constants."""
    found = [
        block
        for block in page
        if block.language == "sh" and not all(left_out(block, one) for one in commands(block))
    ]
    if page[0].page in ADOPTERS:
        return found if where == ADOPTING else []
    in_cluster = [block for block in found if _CLUSTER.search(block.content)]
    if page[0].page == "docs/audit.md":
        in_cluster = []  # a server of the test has the objects of the page
    elif in_cluster and page[0].page not in IN_PARTS:
        in_cluster = found
    here = [block for block in found if block not in in_cluster]
    return {HERE: here, CLUSTER: in_cluster, ADOPTING: []}[where]
