"""What controllers of Pods must be."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.controls.control import Control, checked, workload
from tests.e2e.policy_comparison import bound
from tests.e2e.setups import rule

Json = dict[str, Any]

DEPLOYMENTS: Final = (rule("deployments", "CREATE", "UPDATE", group="apps"),)
JOBS: Final = (rule("jobs", "CREATE", group="batch"),)
CRON_JOBS: Final = (rule("cronjobs", "CREATE", "UPDATE", group="batch"),)


def deployment(**members: Any) -> Json:
    return workload("Deployment", members)


def cron_job(**members: Any) -> Json:
    return workload("CronJob", members)


def autoscaler(least: int, most: int) -> Json:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": {"minReplicas": least, "maxReplicas": most, "scaleTargetRef": target},
    }


def disruption_budget(**members: Any) -> Json:
    selector = {"matchLabels": {"app": "shop"}}
    spec = {"selector": selector, **members}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec}


CONTROLS: Final[tuple[Control, ...]] = (
    Control(
        "two-replicas",
        DEPLOYMENTS,
        checked(
            ("object.spec.replicas >= 2", "'expected 2 replicas, found %d'.format([object.spec.replicas])")
        ),
        (deployment(replicas=2),),
        (deployment(), deployment(replicas=0)),
    ),
    Control(
        "most-replicas",
        DEPLOYMENTS,
        checked(
            "object.spec.replicas <= variables.most",
            ("variables.most >= 3", "'the limit is ' + string(variables.most)"),
        ),
        (deployment(replicas=3),),
        (deployment(replicas=4),),
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "variables": [{"name": "most", "expression": "int(params.data.max)"}],
        },
        bound(paramRef={"name": "limits", "namespace": "{namespace}", "parameterNotFoundAction": "Deny"}),
    ),
    Control(
        "rolling-update",
        DEPLOYMENTS,
        checked(
            "object.spec.strategy.type == 'RollingUpdate'",
            "string(object.spec.?strategy.?rollingUpdate.?maxUnavailable.orValue('25%')) in ['0', '25%']",
        ),
        (deployment(), deployment(strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}})),
        (
            deployment(strategy={"type": "Recreate"}),
            deployment(strategy={"rollingUpdate": {"maxUnavailable": "50%"}}),
        ),
    ),
    Control(
        "exact-selector",
        DEPLOYMENTS,
        checked("object.spec.selector.matchLabels == object.spec.template.metadata.labels"),
        (deployment(),),
        (
            deployment(
                template={
                    "metadata": {"labels": {"app": "shop", "tier": "web"}},
                    "spec": {"containers": [{"name": "main", "image": "a"}]},
                }
            ),
        ),
    ),
    Control(
        "short-history",
        DEPLOYMENTS,
        checked("object.spec.revisionHistoryLimit in [0, 1, 2, 3, 4, 5]"),
        (deployment(revisionHistoryLimit=5),),
        (deployment(),),
    ),
    Control(
        "patient-rollout",
        DEPLOYMENTS,
        checked("duration(string(object.spec.progressDeadlineSeconds) + 's') >= duration('10m')"),
        (deployment(),),
        (deployment(progressDeadlineSeconds=599),),
    ),
    Control(
        "not-paused",
        DEPLOYMENTS,
        checked("!object.spec.?paused.orValue(false)"),
        (deployment(),),
        (deployment(paused=True),),
    ),
    Control(
        "same-labels-in-the-template",
        (
            *DEPLOYMENTS,
            rule("statefulsets daemonsets", "CREATE", group="apps"),
        ),
        checked(
            "object.spec.template.metadata.labels.all(k, k == 'app' || k in object.metadata.labels)",
            "!('app' in object.metadata.labels)",
        ),
        (deployment(), workload("StatefulSet"), workload("DaemonSet")),
        ({**deployment(), "metadata": {"labels": {"app": "shop"}}},),
    ),
    Control(
        "parallel-pods",
        (rule("statefulsets", "CREATE", group="apps"),),
        checked("object.spec.podManagementPolicy == 'Parallel'"),
        (workload("StatefulSet", {"podManagementPolicy": "Parallel"}),),
        (workload("StatefulSet"),),
    ),
    Control(
        "jobs-end",
        JOBS,
        checked("has(object.spec.activeDeadlineSeconds) && object.spec.activeDeadlineSeconds <= 3600"),
        (workload("Job", {"activeDeadlineSeconds": 60}),),
        (workload("Job"), workload("Job", {"activeDeadlineSeconds": 7200})),
    ),
    Control(
        "jobs-are-cleaned-up",
        JOBS,
        checked("object.spec.?ttlSecondsAfterFinished.hasValue()"),
        (workload("Job", {"ttlSecondsAfterFinished": 0}),),
        (workload("Job"),),
    ),
    Control(
        "few-retries",
        JOBS,
        checked("object.spec.backoffLimit < 4"),
        (workload("Job", {"backoffLimit": 3}),),
        (workload("Job"),),
    ),
    Control(
        "not-every-minute",
        CRON_JOBS,
        checked(
            (
                "!object.spec.schedule.startsWith('*')",
                "'the schedule ' + object.spec.schedule + ' is every minute'",
            )
        ),
        (cron_job(),),
        (cron_job(schedule="* * * * *"), cron_job(schedule="*/5 * * * *")),
    ),
    Control(
        "one-at-a-time",
        CRON_JOBS,
        checked("object.spec.concurrencyPolicy != 'Allow'"),
        (cron_job(concurrencyPolicy="Forbid"), cron_job(concurrencyPolicy="Replace")),
        (cron_job(),),
    ),
    Control(
        "with-time-zone",
        CRON_JOBS,
        checked("object.spec.?timeZone.orValue('').startsWith('Europe/')"),
        (cron_job(timeZone="Europe/Berlin"),),
        (cron_job(), cron_job(timeZone="Etc/UTC")),
    ),
    Control(
        "room-to-scale",
        (rule("horizontalpodautoscalers", "*", group="autoscaling", version="v2"),),
        checked("object.spec.minReplicas >= 2", "object.spec.maxReplicas > object.spec.minReplicas"),
        (autoscaler(2, 3),),
        (autoscaler(1, 3), autoscaler(2, 2), autoscaler(1, 1)),
    ),
    Control(
        "evictable",
        (rule("poddisruptionbudgets", "*", group="policy"),),
        checked(
            "!has(object.spec.maxUnavailable) || type(object.spec.maxUnavailable) == string "
            "|| object.spec.maxUnavailable > 0",
            "object.spec.?minAvailable.orValue('0%') != '100%'",
        ),
        (disruption_budget(maxUnavailable=1), disruption_budget(maxUnavailable="10%"), disruption_budget()),
        (disruption_budget(maxUnavailable=0), disruption_budget(minAvailable="100%")),
    ),
)
