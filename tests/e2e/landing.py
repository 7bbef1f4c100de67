"""``--landing``: the end-to-end tests that every change has to pass.

These are the main case of each file, and of the files that the change touches as many as ``LIMIT_S`` allows:
first of those that it changes themselves, then of those that import a changed module of this folder or for
which ``MAIN`` names a changed part of the product. Each file has the same time. Of a test with many
parameters it is ``SAMPLE`` of them at first, evenly spread. The others are printed as left out.

`make test-all` runs all tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.kit import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    Cases = dict[str, dict[str, list[pytest.Item]]]
    """By file and test."""

FOLDER: Final = Path(__file__).parent
SAMPLE: Final = 8
LIMIT_S: Final = 1_000
"""Of the seconds in ``SECONDS``, for all that a landing runs. Only the main cases may take more."""
SECONDS: Final = FOLDER / "seconds.txt"
"""Lines of a test and its seconds in a landing: ``python -m tests.e2e.seconds`` writes it."""

WHOLE_ONLY: Final = (
    *("engine_installation", "gatekeeper_worker", "kubewarden_worker", "kyverno_worker"),
    *("argocd", "migrate", "migrate_kyverno", "other_engines", "chart_registry"),
)
"""Files that only the whole run has: their programs take many minutes to build."""
MAIN: Final[dict[str, tuple[str, ...]]] = {
    "adopting": ("the_commands_of_a_page_print_what_it_shows", "docs/first-weeks.md", "docs/try-in-kind.md"),
    "audit": (
        "the_audit_log_holds_every_annotation_of_the_gateway_and_its_policies",
        "gateway/pure/core/annotations.py",
    ),
    "audit_command": (
        "stored_objects_and_restarts_are_audited_and_reported_and_again_only_what_changed",
        "gateway/tools/audit/",
        "tests/audit/",
    ),
    "audit_continuous": (
        "metrics_and_reports_follow_objects_namespaces_policies_and_a_restart_of_the_api_server",
        "gateway/tools/audit/",
        "gateway/tools/cli/audit_continuous.py",
    ),
    "authentication": ("either_certificate_or_token_is_enough", "gateway/server/serving/authentication.py"),
    "availability": (
        "a_rolling_restart_of_two_gateways_loses_no_create",
        "gateway/server/serving/listener.py",
    ),
    "bed": ("kubectl_authenticates_as_the_given_user",),
    "bounds": ("a_webhook_that_hangs_fails_after_its_timeout", "gateway/pure/core/deadline.py"),
    "built_in_resources": (
        "every_resource_of_the_api_server_is_known",
        "gateway/pure/openapi/built_in_resources.py",
    ),
    "builtin_controllers": (
        "written_requests",
        "workers/python/admission_gateway_worker/policies/builtin.py",
    ),
    "ca_bundles": ("a_ca_is_replaced_while_creates_go_on", "gateway/engine/credentials/ca_bundle.py"),
    "cel": ("the_vectors_match_the_oracle", "gateway/pure/cel/", "tests/cel/"),
    "chart": ("the_gateway_accepts_its_configuration", "deploy/chart/"),
    "cluster_schemas": (
        "merged_custom_resources_are_those_of_server_side_apply",
        "gateway/server/kubernetes/schemas.py",
    ),
    "custom_policies": (
        "policies_deny_change_and_are_removed",
        "gateway/config/merge/custom_policies.py",
        "gateway/config/merge/policy_authors.py",
    ),
    "custom_resources": (
        "applied_resources_are_enforced_and_get_a_status_with_the_deployed_role",
        "gateway/server/kubernetes/custom_resources.py",
        "gateway/server/kubernetes/status_writer.py",
    ),
    "decision_log": (
        "a_denied_command_leads_to_the_policy_its_worker_and_the_configuration",
        "gateway/observe/decisions/",
    ),
    "decision_reference": ("kubectl_shows_the_command_once_on_a_line_of_its_own",),
    "default_installation": (
        "all_replicas_have_one_configuration_and_the_status_has_all_columns",
        "deploy/chart/",
        "gateway/config/merge/digest.py",
        "gateway/tools/status/",
    ),
    "defaults": ("defaults_are_those_of_the_api_server", "gateway/pure/workloads/"),
    "differential": (
        "an_operation_has_the_outcome_without_a_gateway",
        "gateway/pure/core/evaluation.py",
        "gateway/engine/dispatch/https/",
        "tests/recorded/",
    ),
    "documentation": ("the_commands_of_a_page_work_in_a_release", "docs/", "tests/docs/"),
    "engine_resources": (
        "policies_in_the_cluster_decide_change_and_go",
        "gateway/config/merge/loaded_resources.py",
        "gateway/server/kubernetes/loaded_kinds.py",
    ),
    "exceptions": ("an_exception_covers_its_own_namespace_only", "gateway/pure/core/exemptions.py"),
    "faults": ("the_failure_policy_decides_for_a_faulty_worker", "gateway/engine/dispatch/verdicts.py"),
    "front_page": ("pictures_show_a_denial_its_reasons_and_its_page", "gateway/server/pages/"),
    "front_end": (
        "calls_one_after_another_share_a_connection_for_each_phase",
        "gateway/server/serving/http_connection.py",
    ),
    "helm": ("an_installed_release_is_registered_trusted_spread_and_enforced", "deploy/chart/"),
    "histograms": ("quantiles_are_interpolated_within_a_bucket",),
    "identity": (
        "some_patches_that_the_api_server_refuses_are_their_webhooks_failures",
        "gateway/pure/core/identity.py",
    ),
    "image_review": (
        "pods_are_decided_alike",
        "gateway/server/image_review.py",
        "gateway/engine/dispatch/https/image_review.py",
    ),
    "json_patches": (
        "patched_objects_are_those_of_the_api_server",
        "gateway/pure/admission_policies/json_patch.py",
        "tests/recorded/",
    ),
    "kubectl": ("kubectl_shows_every_denial_and_failure_in_order", "gateway/pure/core/decision.py"),
    "kubectl_plugin": (
        "the_commands_of_the_page_do_what_it_says",
        "gateway/tools/kubectl/",
        "gateway/tools/status/explanations.py",
        "docs/kubectl-plugin.md",
    ),
    "kubelet": ("a_job_runs_to_its_completion",),
    "lock_outs": (
        "predictions_for_drawn_registrations_are_what_the_api_server_does",
        "gateway/tools/deadlocks/",
    ),
    "locust": ("recorded_reviews_and_objects_go_through_the_registered_gateway", "loadtest/locustfile.py"),
    "match_conditions": ("some_expressions_decide_as_in_the_api_server", "gateway/pure/conditions/"),
    "modes": ("a_webhook_is_enforced_where_the_namespace_matches", "gateway/pure/core/modes.py"),
    "moving": ("webhooks_move_behind_the_gateway_one_step_after_another", "gateway/tools/importing/"),
    "mutators": (
        "mutators_that_never_come_to_rest_are_named_in_metrics_log_and_status",
        "gateway/observe/decisions/disputes.py",
        "gateway/pure/core/conflicts.py",
        "gateway/pure/core/disputes.py",
    ),
    "mutating_policies": (
        "a_gateway_in_place_of_the_policies_answers_as_recorded",
        "gateway/pure/admission_policies/mutating.py",
        "gateway/pure/admission_policies/mutations.py",
        "tests/recorded/",
    ),
    "namespaces": (
        "a_pod_created_right_after_its_namespace_meets_the_policies_of_its_labels",
        "gateway/server/kubernetes/namespaces.py",
    ),
    "openapi": (
        "type_checking_finds_what_the_api_server_finds",
        "gateway/pure/openapi/",
        "gateway/pure/admission_policies/type_checking.py",
    ),
    "outages": (
        "the_network_of_pods_comes_back_although_the_pods_of_its_plug_in_are_refused_at_first",
        "gateway/tools/watchdog/",
        "docs/lock-outs.md",
    ),
    "pages": ("a_denied_command_leads_to_its_page_and_an_explanation_repeats_it", "gateway/server/pages/"),
    "placement": (
        "no_request_is_unchecked_while_policies_move_there_and_back",
        "gateway/pure/admission_policies/placing.py",
        "gateway/server/kubernetes/placement.py",
        "gateway/server/kubernetes/placed_objects.py",
    ),
    "pod_security": (
        "random_pods_have_the_same_texts",
        "workers/python/admission_gateway_worker/policies/pod_security/",
    ),
    "pod_security_cluster": (
        "labels_of_namespaces",
        "workers/python/admission_gateway_worker/policies/pod_security/",
    ),
    "platforms": ("the_values_have_the_effect_that_the_page_says", "docs/platforms.md"),
    "policies": (
        "a_gateway_in_place_of_the_policies_answers_as_recorded",
        "gateway/pure/admission_policies/evaluation.py",
        "tests/recorded/",
    ),
    "policy_documents": (
        "the_api_server_answers_as_recorded",
        "tests/recorded/",
    ),
    "preview": (
        "the_final_object_is_that_of_a_dry_run_of_the_api_server",
        "gateway/tools/preview/",
        "gateway/pure/workloads/",
    ),
    "prometheus": (
        "promtool_accepts_the_rules",
        "gateway/observe/telemetry/definitions.py",
        "deploy/alerts.py",
    ),
    "random_differential": (
        "random_webhooks_and_operations_have_the_outcome_without_a_gateway",
        "gateway/pure/core/",
    ),
    "raw_json": ("raw_fields_reach_workers_unchanged", "gateway/pure/core/reading.py"),
    "ready_made_policies": ("a_policy_denies_and_names_the_problem",),
    "registration": ("applying_again_removes_obsolete_entries", "gateway/tools/registration/"),
    "replacement": ("a_changed_configuration_loses_no_create", "gateway/engine/snapshot.py"),
    "replay": (
        "creations_of_an_audit_log_and_the_objects_that_they_made_are_denied_alike",
        "gateway/tools/replay/",
    ),
    "rollout_gateways": (
        "creates_decide_commands_change_answers_and_a_killed_replica_returns",
        "gateway/server/rollout/",
        "gateway/pure/rollout_plan/",
        "gateway/server/pages/acting.py",
    ),
    "rollout_plans": ("two_deciders_promote_once_and_commands_change_both", "gateway/server/rollout"),
    "reports": (
        "failures_are_reported_and_denials_of_existing_objects_have_an_event",
        "gateway/server/reports/",
    ),
    "rollout": ("every_policy_reviews_every_pod_once",),
    "self_managed_tls": (
        "the_api_server_trusts_a_certificate_that_the_gateway_made",
        "gateway/engine/credentials/self_managed.py",
        "gateway/server/kubernetes/self_managed_tls.py",
    ),
    "static_manifests": ("a_registration_in_files_is_enforced_and_cannot_be_changed_by_the_api",),
    "sync": ("reconcilers_continue_and_the_gateway_follows", "gateway/tools/importing/sync.py"),
    "tracing": ("one_trace_leads_from_the_client_to_the_policy", "gateway/observe/tracing/"),
    "troubleshooting": ("an_api_server_says_what_the_page_quotes", "docs/troubleshooting.md"),
    "webhook_tokens": ("tokens_of_a_real_api_server", "gateway/engine/credentials/webhook_tokens.py"),
    "watchdog": (
        "it_exempts_the_system_while_no_gateway_answers_and_restores",
        "gateway/tools/watchdog/",
    ),
}
"""By other file, its main test, and the parts of the product that touch the file."""


class Seconds(NamedTuple):
    """What the first case of a test takes, with what is set up for all, and what each further one does."""

    first: float = 10.0
    further: float = 2.0


class Choice(NamedTuple):
    """What a landing runs, and what it leaves out of the files that the change touches."""

    chosen: list[pytest.Item]
    left_out: list[pytest.Item]


def select(items: Sequence[pytest.Item], changed: Iterable[str]) -> Choice:
    """Return which of *items* a landing runs, in order; *changed* has paths of the repository."""
    changed = list(changed)
    cases: Cases = {}
    for item in items:
        file, test = item.path.stem, item.name.partition("[")[0]
        if file.removeprefix("test_") not in WHOLE_ONLY:
            cases.setdefault(file, {}).setdefault(test, []).append(item)
    seconds = read_seconds()
    takes: dict[pytest.Item, float] = {}
    for file, tests in cases.items():
        for test, (case, *others) in tests.items():
            first, further = seconds.get((file, test), Seconds())
            takes |= {case: first, **dict.fromkeys(others, further)}
    chosen = {case for file, tests in cases.items() for case in _sample(tests.get(f"test_{_main(file)}", []))}
    own = {Path(path).stem for path in changed if (ROOT / path).parent == FOLDER}
    files = touched(changed)
    wanted = [*_in_turn(cases, files & own, takes), *_in_turn(cases, files - own, takes)]
    left_s = LIMIT_S - sum(map(takes.__getitem__, chosen))
    for case in wanted:
        if case not in chosen and takes[case] <= left_s:
            left_s -= takes[case]
            chosen.add(case)
    left_out = set(wanted) - chosen
    return Choice([one for one in items if one in chosen], [one for one in items if one in left_out])


def _main(file: str) -> str:
    return MAIN[file.removeprefix("test_")][0]


def _sample(same: list[pytest.Item]) -> list[pytest.Item]:
    return same[:: -(-len(same) // SAMPLE)] if same else []


def _in_turn(cases: Cases, files: set[str], takes: dict[pytest.Item, float]) -> list[pytest.Item]:
    """Return the cases of *files* so that wherever the list ends, each file has as many seconds.

    Of a file the short tests come first, and the sample of each test before the other cases.
    """
    order: list[tuple[float, pytest.Item]] = []
    for file in sorted(files & cases.keys()):
        tests = sorted(cases[file].values(), key=lambda same: takes[same[0]])
        samples = [case for same in tests for case in _sample(same)]
        others = [case for same in tests for case in same if case not in samples]
        total = 0.0
        for case in (*samples, *others):
            total += takes[case]
            order.append((total, case))
    return [case for _, case in sorted(order, key=lambda one: one[0])]


def read_seconds() -> dict[tuple[str, str], Seconds]:
    """Return the seconds of each test by file and name."""
    rows = (line.split() for line in SECONDS.read_text().splitlines())
    return {(file, test): Seconds(float(first), float(further)) for file, test, first, further in rows}


def touched(changed: Iterable[str]) -> set[str]:
    """Return the stems of the test files that *changed*, paths of the repository, concern."""
    paths = [Path(path) for path in changed]
    modules = {path.stem for path in paths if (ROOT / path).parent == FOLDER and path.suffix == ".py"}
    imports = {file.stem: _imports(file) for file in FOLDER.glob("*.py")}
    while more := {stem for stem, used in imports.items() if used & modules} - modules:
        modules |= more
    parts = {
        f"test_{name}"
        for name, (_, *prefixes) in MAIN.items()
        if any(path.as_posix().startswith(prefix) for path in paths for prefix in prefixes)
    }
    return {stem for stem in modules if stem.startswith("test_")} | parts


def _imports(file: Path) -> set[str]:
    return set(re.findall(r"^\s*from tests\.e2e\.(\w+) import", file.read_text(), re.MULTILINE))
