"""What an API server answers to the creation of objects in a dry run: ``preview --server-dry-run``.

Source: k8s.io/apiserver pkg/endpoints/handlers/create.go (dryRun, fieldValidation),
pkg/registry/generic/registry/store.go and dryrun.go (that an object exists is found out last).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.api_client import ApiStatusError
from gateway.tools.preview.decoding import Problem
from gateway.tools.preview.fields import field_in
from gateway.tools.preview.validation import add_problems
from gateway.tools.replay.about_request import ReportRedactor

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.engine.object_review import Json
    from gateway.tools.preview.findings import Origin
    from gateway.tools.preview.model import Previewed

_PATIENCE_S: Final = 60.0
"""Several webhooks may wait for 30 s, one after the other in the mutating phase."""
_MAX_CAUSES: Final = 50
_NOT_FOUND, _EXISTS, _UNAUTHORIZED, _FORBIDDEN, _TOO_MANY = 404, 409, 401, 403, 429
_SERVER_ERROR: Final = 500
_NO_RIGHT: Final = "cannot create resource"
"""What the API server says if the account may not create such objects. Plug-ins answer 403, too."""


class ServerDryRun:
    """Creates the objects of the input in a dry run of an API server. Make it on a running loop."""

    def __init__(
        self,
        cluster: KubernetesSettings,
        namespaces: Container[str],
        custom: Container[tuple[str, str]],
        *,
        is_strict: bool,
    ) -> None:
        """*namespaces*, and the kinds in *custom* by group, are those that the input has itself.

        With *is_strict*, fields that the API server does not know are refused.
        """
        self._access = ClusterAccess(cluster)
        self._namespaces = namespaces
        self._custom = custom
        self._parameters = f"dryRun=All&fieldValidation={'Strict' if is_strict else 'Ignore'}"

    async def close(self) -> None:
        """Release the connection."""
        await self._access.close()

    async def note(
        self, previewed: Previewed, request: Json, written: Json, final: object, origin: Origin
    ) -> None:
        """Add findings to the last object of *previewed*, if the input has it, which is *written*.

        Raises:
            ClusterError: the API server cannot be reached.
        """
        del final
        reviewed = previewed.objects[-1]
        if reviewed is not previewed.objects[0]:
            # Only its controller creates it.
            return
        error = await self._answer(request, written)
        if error is None:
            return
        is_coming = error.status == _NOT_FOUND and (
            reviewed.name.namespace in self._namespaces
            or (reviewed.name.group, reviewed.name.kind) in self._custom
        )
        problems = list(_problems(error, written))
        if is_coming:
            text = "the API server cannot try it before its namespace and its kind are there"
            add_problems(reviewed, [Problem("", text)], "note", written, origin, "undecided")
        elif _is_unknown(error):
            add_problems(reviewed, problems, "error", written, origin, "undecided")
        else:
            add_problems(reviewed, problems, "error", written, origin)

    async def _answer(self, request: Json, written: Json) -> ClusterError | None:
        """Return the error with which the API server answers; None if it creates the object, or has it."""
        async with self._access.api() as api:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await api.write("POST", f"{_path(request)}?{self._parameters}", written)
            except TimeoutError:
                return ClusterError(f"the API server gives no answer in {_PATIENCE_S:g} s", _SERVER_ERROR)
            except ClusterError as error:
                if not error.status:
                    raise
                return None if error.status == _EXISTS else error
        return None


def _path(request: Json) -> str:
    group, version, name = (request["resource"][part] for part in ("group", "version", "resource"))
    parts = ["apis", group, version] if group else ["api", version]
    # Requests about a Namespace have it as their namespace.
    namespace = "" if (group, name) == ("", "namespaces") else request.get("namespace")
    parts += ["namespaces", str(namespace)] if namespace else []
    return "/" + "/".join(quote(part, safe="") for part in (*parts, name))


def _problems(error: ClusterError, written: Json) -> Iterator[Problem]:
    """Yield the causes of *error*, or its message, without secrets of *written*."""
    redactor = ReportRedactor()
    redactor.learn(written)
    details: dict[str, Any] = error.details if isinstance(error, ApiStatusError) else {}
    causes = [one for one in details.get("causes") or () if isinstance(one, dict) and one.get("field")]
    for cause in causes[:_MAX_CAUSES]:
        yield Problem(redactor.message(str(cause["field"])), redactor.message(str(cause.get("message"))))
    if not causes:
        message = redactor.message(str(error).removeprefix(f"the API server answers {error.status}: "))
        yield Problem(field_in(message), message)


def _is_unknown(error: ClusterError) -> bool:
    """Whether *error* does not tell what the API server would answer to an account that may create it."""
    if error.status == _FORBIDDEN:
        return _NO_RIGHT in str(error)
    return error.status in (_UNAUTHORIZED, _TOO_MANY) or error.status >= _SERVER_ERROR
