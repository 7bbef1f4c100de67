"""ApplyConfigurations of mutations, merged by the schema of the object's kind.

The schemas are those of the cluster, and of Kubernetes' own kinds, which come with the gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.admission_policies.values import PatchError
from gateway.pure.openapi.built_in import built_in_schemas
from gateway.pure.openapi.schemas import MergeError, UnknownKindError

if TYPE_CHECKING:
    from gateway.pure.admission_policies.mutations import Merge
    from gateway.pure.core.policy import FollowedSchemas
    from gateway.pure.core.review import Json


def merger(schemas: FollowedSchemas | None) -> Merge:
    """Return the merge by *schemas*, or by those that come with the gateway if that is None."""

    def merge(live: Json, patch: Json) -> Json:
        version, kind = str(live.get("apiVersion", "")), str(live.get("kind", ""))
        group, _, version = version.rpartition("/")
        known = built_in_schemas() if schemas is None else schemas.current
        try:
            return known.merge(group, version, kind, live, patch)
        except MergeError as error:
            raise PatchError(str(error)) from None
        except UnknownKindError as error:
            raise PatchError(f"there is no schema of {error}") from None

    return merge
