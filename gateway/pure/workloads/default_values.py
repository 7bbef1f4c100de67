"""Values that the API server writes into fields of built-in types, beside those that their schemas declare.

Source: k8s.io/kubernetes pkg/apis/GROUP/VERSION/defaults.go, k8s.io/apiextensions-apiserver and
k8s.io/kube-aggregator pkg/apis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODE: Final = {"defaultMode": 0o644}
_POLICY: Final = {"failurePolicy": "Fail"}
_SELECTORS: Final[Mapping[str, Any]] = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
}
_WEBHOOK: Final = {**_POLICY, **_SELECTORS, "timeoutSeconds": 10}
_PRIORITY: Final = {"preemptionPolicy": "PreemptLowerPriority"}
_CONCURRENCY: Final = {"lendablePercent": 0}
_PORT: Final = {"port": 443}

IF_ABSENT: Final[Mapping[str, Mapping[str, Any]]] = {
    "admissionregistration.MatchResources": _SELECTORS,
    "admissionregistration.MutatingAdmissionPolicySpec": _POLICY,
    "admissionregistration.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    "admissionregistration.RuleWithOperations": {"scope": "*"},
    "admissionregistration.NamedRuleWithOperations": {"scope": "*"},
    "admissionregistration.ServiceReference": _PORT,
    "admissionregistration.ValidatingAdmissionPolicySpec": _POLICY,
    "admissionregistration.ValidatingWebhook": _WEBHOOK,
    "apiextensions.ServiceReference": _PORT,
    "apiregistration.ServiceReference": _PORT,
    "apps.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "apps.DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "apps.ReplicaSetSpec": {"replicas": 1},
    "apps.StatefulSetSpec": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "authentication.TokenRequestSpec": {"expirationSeconds": 3600},
    "autoscaling.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "batch.CronJobSpec": {"suspend": False, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1},
    "core.ConfigMapVolumeSource": _MODE,
    "core.DownwardAPIVolumeSource": _MODE,
    "core.HostPathVolumeSource": {"type": ""},
    "core.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.PodSpec": {"securityContext": {}, "terminationGracePeriodSeconds": 30},
    "core.ProjectedVolumeSource": _MODE,
    "core.ResourceFieldSelector": {"divisor": "0"},
    "core.SecretVolumeSource": _MODE,
    "core.TCPSocketAction": {"port": 0},
    "core.HTTPGetAction": {"port": 0},
    "core.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "discovery.EndpointPort": {"name": "", "protocol": "TCP"},
    "flowcontrol.ExemptPriorityLevelConfiguration": {"nominalConcurrencyShares": 0, **_CONCURRENCY},
    "flowcontrol.LimitedPriorityLevelConfiguration": {"nominalConcurrencyShares": 30, **_CONCURRENCY},
    "networking.IngressClassParametersReference": {"scope": "Cluster"},
    "networking.NetworkPolicyPort": {"protocol": "TCP"},
    "resource.Counter": {"value": "0"},
    "resource.DeviceCapacity": {"value": "0"},
    "resource.ResourcePoolStatusRequestSpec": {"limit": 100},
    "scheduling.PriorityClass": _PRIORITY,
    "storage.CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    },
    "storage.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}
"""By group and type: the fields that are pointers in Go. An empty value stays."""

_CONTAINER: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}

IF_EMPTY: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.DaemonSetUpdateStrategy": {"type": "RollingUpdate"},
    "apps.DeploymentStrategy": {"type": "RollingUpdate"},
    "apps.StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    "apps.StatefulSetSpec": {"podManagementPolicy": "OrderedReady"},
    "batch.CronJobSpec": {"concurrencyPolicy": "Allow"},
    "batch.PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
    "core.Container": _CONTAINER,
    "core.EndpointPort": {"protocol": "TCP"},
    "core.EphemeralContainer": _CONTAINER,
    "core.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.NamespaceStatus": {"phase": "Active"},
    "core.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.PersistentVolumeClaimStatus": {"phase": "Pending"},
    "core.PersistentVolumeStatus": {"phase": "Pending"},
    "core.PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
    },
    "core.Probe": {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    "core.Secret": {"type": "Opaque"},
    "core.ServiceSpec": {"type": "ClusterIP", "sessionAffinity": "None"},
    "flowcontrol.FlowSchemaSpec": {"matchingPrecedence": 1000},
    "flowcontrol.QueuingConfiguration": {"handSize": 8, "queues": 64, "queueLengthLimit": 50},
    "rbac.RoleRef": {"apiGroup": "rbac.authorization.k8s.io"},
    "storage.CSIDriverSpec": {"volumeLifecycleModes": ["Persistent"]},
}
"""By group and type: fields of which an empty value is the same as none."""
