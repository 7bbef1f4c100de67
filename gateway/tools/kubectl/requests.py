"""Requests that a person would make with kubectl, for a gateway to explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.errors import ClusterError
from gateway.engine.object_review import DEFAULT_GROUPS, RequestOptions, built_in_resource, request_for
from gateway.pure.workloads.defaults import with_defaults
from gateway.server.kubernetes import discovery

if TYPE_CHECKING:
    from gateway.server.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

USER: Final = "kubectl-admission"
"""If the API server does not say who asks."""
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class User(NamedTuple):
    """Who makes a request."""

    name: str = USER
    groups: tuple[str, ...] = DEFAULT_GROUPS


async def who_asks(api: ApiClient) -> User:
    """Return the user of *api*, as the API server knows it."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        info = (await api.write("POST", _REVIEWS, review))["status"]["userInfo"]
        return User(str(info["username"]), tuple(map(str, info.get("groups") or ())))
    except (ClusterError, KeyError, TypeError):
        return User()


class Requests:
    """Makes the requests that create objects in one cluster."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        """*namespace* is that of objects that name none."""
        self._api = api
        self._namespace = namespace
        self._resources: list[discovery.Resource] | None = None

    async def resources(self) -> list[discovery.Resource]:
        """Return the kinds of the cluster, asked once.

        Raises:
            ClusterError: the API server cannot be reached, or refuses to answer.
        """
        if self._resources is None:
            self._resources = await discovery.resources(self._api)
        return self._resources

    async def creation(self, found: Json, user: User) -> Json:
        """Return the request by which *user* creates *found*, with the defaults of its kind.

        Raises:
            MalformedReview: it is no complete object.
            ClusterError: as :meth:`resources`.
        """
        resource, is_namespaced = "", True
        group, kind = str(found.get("apiVersion")).rpartition("/")[0], str(found.get("kind"))
        if (built_in := built_in_resource(group, kind)) is not None:
            is_namespaced = built_in.is_namespaced
        else:
            for one in await self.resources():
                if (one.group, one.kind) == (group, kind):
                    resource, is_namespaced = one.plural, one.is_namespaced
        metadata = found.get("metadata")
        has_own = isinstance(metadata, dict) and bool(metadata.get("namespace"))
        options = RequestOptions(
            user=user.name,
            groups=user.groups,
            namespace=self._namespace if is_namespaced and not has_own else "",
            resource=resource,
            is_namespaced=is_namespaced,
        )
        return request_for(with_defaults(found), options)
