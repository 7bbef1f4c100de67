"""The resources of kube-apiserver itself that admission webhooks can be called for.

A rule for another resource of these groups is probably a mistake. It is accepted: newer versions of
Kubernetes have more resources. Custom resources have groups of their own.

Source: api/discovery of k8s.io/kubernetes 1.33 and 1.37. Subresources that can only be read are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONNECTED: Final = {
    ("pods", "attach"),
    ("pods", "exec"),
    ("pods", "portforward"),
    ("pods", "proxy"),
    ("services", "proxy"),
    ("nodes", "proxy"),
}
"""Resources and subresources of the core group whose only operation is CONNECT."""


@dataclass(frozen=True, slots=True)
class BuiltInResource:
    """One resource of a group."""

    group: str
    name: str
    kind: str
    is_namespaced: bool
    other_names: frozenset[str]
    """Kind and short names, in lower case: the kind is also the singular."""
    sub_resources: frozenset[str]


_BY_GROUP: Final = {
    ("", True): """
        bindings Binding
        configmaps ConfigMap cm
        endpoints Endpoints ep
        events Event ev
        limitranges LimitRange limits
        persistentvolumeclaims PersistentVolumeClaim pvc /status
        pods Pod po /attach /binding /ephemeralcontainers /eviction /exec /portforward /proxy /resize /status
        podtemplates PodTemplate
        replicationcontrollers ReplicationController rc /scale /status
        resourcequotas ResourceQuota quota /status
        secrets Secret
        serviceaccounts ServiceAccount sa /token
        services Service svc /proxy /status
    """,
    ("", False): """
        namespaces Namespace ns /finalize /status
        nodes Node no /proxy /status
        persistentvolumes PersistentVolume pv /status
    """,
    ("admissionregistration.k8s.io", False): """
        mutatingadmissionpolicies MutatingAdmissionPolicy
        mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding
        mutatingwebhookconfigurations MutatingWebhookConfiguration
        validatingadmissionpolicies ValidatingAdmissionPolicy /status
        validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding
        validatingwebhookconfigurations ValidatingWebhookConfiguration
    """,
    ("apiextensions.k8s.io", False): """
        customresourcedefinitions CustomResourceDefinition crd crds /status
    """,
    ("apiregistration.k8s.io", False): """
        apiservices APIService /status
    """,
    ("apps", True): """
        controllerrevisions ControllerRevision
        daemonsets DaemonSet ds /status
        deployments Deployment deploy /scale /status
        replicasets ReplicaSet rs /scale /status
        statefulsets StatefulSet sts /scale /status
    """,
    ("authentication.k8s.io", False): """
        selfsubjectreviews SelfSubjectReview
        tokenreviews TokenReview
    """,
    ("authorization.k8s.io", True): """
        localsubjectaccessreviews LocalSubjectAccessReview
    """,
    ("authorization.k8s.io", False): """
        selfsubjectaccessreviews SelfSubjectAccessReview
        selfsubjectrulesreviews SelfSubjectRulesReview
        subjectaccessreviews SubjectAccessReview
    """,
    ("autoscaling", True): """
        horizontalpodautoscalers HorizontalPodAutoscaler hpa /status
    """,
    ("batch", True): """
        cronjobs CronJob cj /status
        jobs Job /status
    """,
    ("certificates.k8s.io", True): """
        podcertificaterequests PodCertificateRequest /status
    """,
    ("certificates.k8s.io", False): """
        certificatesigningrequests CertificateSigningRequest csr /approval /status
        clustertrustbundles ClusterTrustBundle
    """,
    ("coordination.k8s.io", True): """
        leasecandidates LeaseCandidate
        leases Lease
    """,
    ("discovery.k8s.io", True): """
        endpointslices EndpointSlice
    """,
    ("events.k8s.io", True): """
        events Event ev
    """,
    ("flowcontrol.apiserver.k8s.io", False): """
        flowschemas FlowSchema /status
        prioritylevelconfigurations PriorityLevelConfiguration /status
    """,
    ("internal.apiserver.k8s.io", False): """
        storageversions StorageVersion /status
    """,
    ("lifecycle.k8s.io", True): """
        evictionrequests EvictionRequest /status
        evictions Eviction /status
    """,
    ("networking.k8s.io", True): """
        ingresses Ingress ing /status
        networkpolicies NetworkPolicy netpol
    """,
    ("networking.k8s.io", False): """
        ingressclasses IngressClass
        ipaddresses IPAddress ip
        servicecidrs ServiceCIDR /status
    """,
    ("node.k8s.io", False): """
        runtimeclasses RuntimeClass
    """,
    ("policy", True): """
        poddisruptionbudgets PodDisruptionBudget pdb /status
    """,
    ("rbac.authorization.k8s.io", True): """
        rolebindings RoleBinding
        roles Role
    """,
    ("rbac.authorization.k8s.io", False): """
        clusterrolebindings ClusterRoleBinding
        clusterroles ClusterRole
    """,
    ("resource.k8s.io", True): """
        resourceclaims ResourceClaim /status
        resourceclaimtemplates ResourceClaimTemplate
    """,
    ("resource.k8s.io", False): """
        deviceclasses DeviceClass
        devicetaintrules DeviceTaintRule /status
        resourcepoolstatusrequests ResourcePoolStatusRequest /status
        resourceslices ResourceSlice
    """,
    ("scheduling.k8s.io", True): """
        compositepodgroups CompositePodGroup /status
        podgroups PodGroup /status
        workloads Workload
    """,
    ("scheduling.k8s.io", False): """
        priorityclasses PriorityClass pc
    """,
    ("storage.k8s.io", True): """
        csistoragecapacities CSIStorageCapacity
    """,
    ("storage.k8s.io", False): """
        csidrivers CSIDriver
        csinodes CSINode /status
        storageclasses StorageClass sc
        volumeattachments VolumeAttachment /status
        volumeattributesclasses VolumeAttributesClass vac
    """,
    ("storagemigration.k8s.io", False): """
        storageversionmigrations StorageVersionMigration /status
    """,
}
"""By group and whether they are namespaced: name, kind, short names and subresources."""


def _read() -> dict[str, dict[str, BuiltInResource]]:
    found: dict[str, dict[str, BuiltInResource]] = {}
    for (group, is_namespaced), lines in _BY_GROUP.items():
        for line in lines.strip().splitlines():
            name, kind, *rest = line.split()
            subs = frozenset(word[1:] for word in rest if word.startswith("/"))
            others = frozenset(word.lower() for word in (kind, *rest) if not word.startswith("/"))
            one = BuiltInResource(group, name, kind, is_namespaced, others, subs)
            found.setdefault(group, {})[name] = one
    return found


RESOURCES: Final = _read()
"""By group and name."""
