"""The check of the types of volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.pod_security.pod import listed, plural

if TYPE_CHECKING:
    from admission_gateway_worker.policies.pod_security.pod import Pod, Violation

_ALLOWED: Final = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
_RESTRICTED: Final = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)
"""A volume with several sources, which the API server refuses, is named by the first of these."""


def restricted_volumes(pod: Pod) -> Violation | None:
    """Only volumes of the pod itself and those that an administrator has set up are allowed."""
    bad, found = [], set()
    for volume in pod.spec.get("volumes") or ():
        # A loop, because the first field is nearly always found early and without a call.
        for field in _ALLOWED:
            if volume.get(field) is not None:
                break
        else:
            bad.append(volume.get("name") or "")
            found.add(next((field for field in _RESTRICTED if volume.get(field) is not None), "unknown"))
    if not bad:
        return None
    subjects = f"{plural('volume', 'volumes', len(bad))} {listed(bad)}"
    types = (
        f"{plural('restricted volume type', 'restricted volume types', len(found))} {listed(sorted(found))}"
    )
    return "restricted volume types", f"{subjects} {plural('uses', 'use', len(bad))} {types}"
