"""Pod Security Standards, as the admission plugin PodSecurity of Kubernetes enforces them.

All checks of the versions v1.0 to v1.37, with the texts of k8s.io/pod-security-admission v0.37.1.
"""

from __future__ import annotations

from typing import Final

from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.pod_security.admission import pod_security
from admission_gateway_worker.policies.pod_security.parameters import SCHEMA, prepare
from admission_gateway_worker.policies.workloads import PODS_AND_TEMPLATES

_NAMESPACES: Final = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["namespaces"],
}

_NOTES: Final = """\
The checks are those of k8s.io/pod-security-admission v0.37.1 for the versions v1.0 to v1.37, on API servers
of any version. `latest` and newer versions have the checks of v1.37.

The labels of the Namespace choose the level. The gateway sends the Namespace if its GatewayConfiguration has
the field `kubernetes`; without a Namespace, Pods are refused with status 500.

Differences from the plugin PodSecurity of an API server:

- The message of a denial begins with `admission webhook "NAME" denied the request: NAME: `. Code, reason,
  details and the rest of the message are equal.
- The gateway cuts warnings to 256 characters. Audit annotations have the whole text.
- Keys of audit annotations end in `/NAME.enforce-policy`, `/NAME.audit-violations`, `/NAME.exempt` and
  `/NAME.error`; those of the plugin are `pod-security.kubernetes.io/enforce-policy` and so on.
- `exemptions.controls` is an addition. The audit annotation `/NAME.exempt-controls` names the controls that
  have fewer violations because of it.
- The metrics `pod_security_evaluations_total`, `pod_security_exemptions_total` and
  `pod_security_errors_total` are served by the worker, with `--metrics-listen`.
- A stricter level of a Namespace causes warnings about running Pods only if the worker has
  [access to the API server](index.md#access-to-the-api-server), with the right to list Pods. Without access
  there are no such warnings; without the right, a warning says that the list failed.

Workloads are never denied. With a second webhook for them, with `failurePolicy: Ignore`, a worker that does
not answer stops Pods only.

The plugin of the API server stays in force beside this policy. For levels that only this policy enforces, set
`defaults` and no labels.
"""

DEFINITIONS: Final = (
    Definition(
        name="pod-security",
        summary="Enforces the Pod Security Standards by the labels of namespaces, as the plugin PodSecurity "
        "of Kubernetes, with defaults and exemptions that managed clusters do not let you set.",
        function=pod_security,
        rules=(*PODS_AND_TEMPLATES, _NAMESPACES),
        users_see='pods "web" is forbidden: violates PodSecurity "restricted:latest": '
        'allowPrivilegeEscalation != false (container "web" must set '
        "securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container "
        '"web" must set securityContext.runAsNonRoot=true)',
        topic="workload security",
        replaces=(
            Replaced("Kubernetes", "PodSecurity"),
            Replaced(
                "Kyverno", "podsecurity-subrule-baseline", "the level comes from labels of the namespace"
            ),
            Replaced(
                "Kyverno", "podsecurity-subrule-restricted", "the level comes from labels of the namespace"
            ),
            Replaced("Gatekeeper", "K8sPSPPrivilegedContainer", "as part of the level `baseline`"),
            Replaced("Gatekeeper", "K8sPSPHostNamespace", "as part of the level `baseline`"),
            Replaced(
                "Gatekeeper", "K8sPSPAllowPrivilegeEscalationContainer", "as part of the level `restricted`"
            ),
        ),
        notes=_NOTES,
        rights="list pods",
        needs_namespace=True,
        parameters=SCHEMA,
        prepare=prepare,
        example={
            "defaults": {"enforce": "baseline", "enforce-version": "v1.37", "warn": "restricted"},
            "exemptions": {
                "namespaces": ["kube-system"],
                "controls": [
                    {
                        "control": "hostPathVolumes",
                        "images": ["registry.example/log-agent:*"],
                        "namespaces": ["logging"],
                    }
                ],
            },
        },
    ),
)
