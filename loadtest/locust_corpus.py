"""What the Locust users send: documents of a folder, as reviews for a gateway or creates for an API server.

A document is an AdmissionReview, as a gateway is sent it, or an object, as it stands in a manifest. Nothing
here imports Locust, which changes the process that imports it.

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
    """Takes the path of an API group's version, returns its APIResourceList."""

FALLBACK_NAMESPACE: Final = "default"
OF_THE_SERVER: Final = frozenset(
    {
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
        *("managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid"),
    }
)
"""Members of metadata that a new object is not sent with, or that are set here."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file of the corpus."""

    name: str
    """Of the file, without its ending."""
    content: dict[str, Any]

    @property
    def request(self) -> dict[str, Any] | None:
        """Return ``request`` of an AdmissionReview, and nothing for an object."""
        if self.content.get("kind") != "AdmissionReview":
            return None
        request = self.content.get("request")
        assert isinstance(request, dict)
        return request


@dataclass(frozen=True, slots=True)
class Review:
    """A review that is posted again and again."""

    name: str
    path: str
    content: dict[str, Any]

    def body(self) -> tuple[str, str]:
        """Return the review as JSON with a new uid, and that uid."""
        uid = str(uuid.uuid4())
        request = {**self.content["request"], "uid": uid}
        return orjson.dumps({**self.content, "request": request}).decode(), uid


@dataclass(frozen=True, slots=True)
class Create:
    """An object that is created again and again, each time under a name that the API server makes up."""

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
        ValueError: there is none, or one that is neither an AdmissionReview nor an object.
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
    """Return a review for each document and each of *paths*, which its name tells apart if there are several.

    Raises:
        ValueError: a document is no AdmissionReview.
    """
    found = []
    for document in documents:
        if document.request is None:
            raise ValueError(
                f"{document.name}.json: a gateway is sent AdmissionReviews, and this is a "
                f"{document.content['kind']}; objects can be created with --via apiserver"
            )
        for path in paths:
            name = document.name if len(paths) == 1 else f"{path} {document.name}"
            found.append(Review(name, path, document.content))
    return found


def creates(
    documents: Iterable[Document], namespace: str | None, discover: Discover
) -> tuple[list[Create], list[str]]:
    """Return how to create the objects of *documents*, and why some of them are not created.

    Args:
        documents: Reviews, of which those count that create a whole object, and objects.
        namespace: Where to create them, unless they are outside of namespaces; by default where they were.
        discover: Asks the API server for the resources that objects belong to; not called for reviews.

    Raises:
        ValueError: nothing remains, or the API server does not know the kind of an object.
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
        raise ValueError("the corpus has nothing that could be created: " + "; ".join(left_out))
    return found, left_out


def _not_created(request: dict[str, Any]) -> str:
    operation = request.get("operation")
    if operation != "CREATE":
        return f"its operation is {operation}, not CREATE"
    if request.get("subResource"):
        return f"it is about the subresource {request['subResource']}"
    return "" if isinstance(request.get("object"), dict) else "it has no object"


def _of_review(name: str, request: dict[str, Any], namespace: str | None) -> Create:
    resource, kind = request.get("resource") or {}, request.get("kind") or {}
    if not resource.get("version") or not resource.get("resource"):
        raise ValueError(f"{name}.json: expected request.resource with group, version and resource")
    group, version = resource.get("group"), resource["version"]
    api_version = f"{group}/{version}" if group else version
    # The review of a Namespace names that one, though it is in none.
    within = "" if (group or "", resource["resource"]) == ("", "namespaces") else request.get("namespace")
    # The object is in the version of the webhook's rule, which `resource` names, whatever the caller sent.
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
    """Return how to create *content*; an empty *namespace* is for objects outside of namespaces."""
    metadata = content.get("metadata") or {}
    prefix = metadata.get("generateName") or f"{metadata.get('name') or 'loadtest'}-"
    kept = {key: value for key, value in metadata.items() if key not in OF_THE_SERVER}
    sent = {**kept, "generateName": prefix, **({"namespace": namespace} if namespace else {})}
    path = f"{_root(content['apiVersion'])}{f'/namespaces/{namespace}' if namespace else ''}/{resource}"
    return Create(name, path, prefix, orjson.dumps({**content, "metadata": sent}).decode())


def _root(api_version: str) -> str:
    """Return the path of an API group's version; the core group, which has no name, has its own root."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
