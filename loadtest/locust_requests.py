"""The requests of the Locust users: reviews for a gateway, or creates for an API server, from a folder.

A document is an AdmissionReview or an object of a manifest. Nothing here imports Locust, which changes the
process that imports it.

Source: Kubernetes documentation, "API Concepts" (resource URIs, generated values, dry-run); kubernetes/api,
``admission/v1/types.go``.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Discover = Callable[[str], dict[str, Any]]
    """Returns the APIResourceList of the path of an API group's version."""

FALLBACK_NAMESPACE: Final = "default"
OF_THE_SERVER: Final = frozenset(
    {
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
        *("managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid"),
    }
)
"""Members of metadata that a new object must not have, or that are set here."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file of the corpus."""

    name: str
    """Of the file, without its suffix."""
    content: dict[str, Any]

    @property
    def request(self) -> dict[str, Any] | None:
        """The ``request`` of an AdmissionReview; None for an object."""
        if self.content.get("kind") != "AdmissionReview":
            return None
        request = self.content.get("request")
        assert isinstance(request, dict)
        return request


@dataclass(frozen=True, slots=True)
class Review:
    """A review that is posted repeatedly."""

    name: str
    path: str
    content: dict[str, Any]

    def body(self) -> tuple[str, str]:
        """Return the review as JSON with a new uid, and the uid."""
        uid = str(uuid.uuid4())
        request = {**self.content["request"], "uid": uid}
        return orjson.dumps({**self.content, "request": request}).decode(), uid


@dataclass(frozen=True, slots=True)
class Create:
    """An object that is created repeatedly, each time with a name that the API server generates."""

    name: str
    """Of the file."""
    path: str
    """Of the resource, such as ``/api/v1/namespaces/default/pods``."""
    prefix: str
    """``generateName``."""
    body: str
    """The object, JSON."""


def read_corpus(folder: Path) -> list[Document]:
    """Return the documents in *folder*, by name.

    Raises:
        ValueError: there is none, or one is neither an AdmissionReview nor an object.
    """
    documents = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = orjson.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if not isinstance(content, dict) or not all(
            isinstance(content.get(member), str) for member in ("apiVersion", "kind")
        ):
            raise ValueError(f"{path}: expected an AdmissionReview or an object, with apiVersion and kind")
        if content["kind"] == "AdmissionReview" and not isinstance(content.get("request"), dict):
            raise ValueError(f"{path}: expected an AdmissionReview with a request")
        documents.append(Document(path.stem, content))
    if not documents:
        raise ValueError(f"{folder}: expected AdmissionReviews in files named *.json, found none")
    return documents


def reviews(documents: Iterable[Document], paths: list[str]) -> list[Review]:
    """Return a review for each document and each of *paths*; with several paths its name contains the path.

    Raises:
        ValueError: a document is not an AdmissionReview.
    """
    found = []
    for document in documents:
        if document.request is None:
            raise ValueError(
                f"{document.name}.json: expected an AdmissionReview, found a "
                f"{document.content['kind']}; objects can be created with --via apiserver"
            )
        for path in paths:
            name = document.name if len(paths) == 1 else f"{path} {document.name}"
            found.append(Review(name, path, document.content))
    return found


def creates(
    documents: Iterable[Document], namespace: str | None, discover: Discover
) -> tuple[list[Create], list[str]]:
    """Return the creates of *documents*, and why some documents are left out.

    Args:
        documents: Objects, and reviews; reviews that do not create an object are left out.
        namespace: For namespaced objects; None for their own namespaces.
        discover: Requests the resources of objects from the API server; not called for reviews.

    Raises:
        ValueError: nothing remains, or the API server has no resource for an object.
    """
    found, left_out = [], []
    for document in documents:
        request = document.request
        if request is None:
            found.append(_of_object(document, namespace, discover))
        elif problem := _not_created(request):
            left_out.append(f"{document.name}.json: {problem}")
        else:
            found.append(_of_review(document.name, request, namespace))
    if not found:
        raise ValueError("no document of the corpus can be created: " + "; ".join(left_out))
    return found, left_out


def _not_created(request: dict[str, Any]) -> str:
    operation = request.get("operation")
    if operation != "CREATE":
        return f"its operation is {operation}, not CREATE"
    if request.get("subResource"):
        return f"its subresource is {request['subResource']}"
    return "" if isinstance(request.get("object"), dict) else "it has no object"


def _of_review(name: str, request: dict[str, Any], namespace: str | None) -> Create:
    resource, kind = request.get("resource") or {}, request.get("kind") or {}
    if not resource.get("version") or not resource.get("resource"):
        raise ValueError(f"{name}.json: expected request.resource with group, version and resource")
    group, version = resource.get("group"), resource["version"]
    api_version = f"{group}/{version}" if group else version
    # The review of a Namespace has the name of the Namespace here, although the object is cluster-scoped.
    within = "" if (group or "", resource["resource"]) == ("", "namespaces") else request.get("namespace")
    # The object has the version of the webhook's rule, which `resource` names, and not that of the request.
    content = {**request["object"], "apiVersion": api_version, "kind": kind.get("kind")}
    return _create(name, content, resource["resource"], (namespace or within) if within else "")


def _of_object(document: Document, namespace: str | None, discover: Discover) -> Create:
    content = document.content
    path = _root(content["apiVersion"])
    for resource in discover(path).get("resources", []):
        if resource.get("kind") == content["kind"] and "/" not in resource.get("name", "/"):
            metadata = content.get("metadata") or {}
            within = namespace or metadata.get("namespace") or FALLBACK_NAMESPACE
            return _create(
                document.name, content, resource["name"], within if resource.get("namespaced") else ""
            )
    kind = f"{content['kind']} in {content['apiVersion']}"
    raise ValueError(f"{document.name}.json: the API server has no resource for a {kind}")


def _create(name: str, content: dict[str, Any], resource: str, namespace: str) -> Create:
    """Return the create of *content*; *namespace* is empty for a cluster-scoped object."""
    metadata = content.get("metadata") or {}
    prefix = metadata.get("generateName") or f"{metadata.get('name') or 'loadtest'}-"
    kept = {key: value for key, value in metadata.items() if key not in OF_THE_SERVER}
    sent = {**kept, "generateName": prefix, **({"namespace": namespace} if namespace else {})}
    path = f"{_root(content['apiVersion'])}{f'/namespaces/{namespace}' if namespace else ''}/{resource}"
    return Create(name, path, prefix, orjson.dumps({**content, "metadata": sent}).decode())


def _root(api_version: str) -> str:
    """Return the path of an API group's version; the core group, which has no name, has its own root."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
