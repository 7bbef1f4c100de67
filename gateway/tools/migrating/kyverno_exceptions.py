"""Which PolicyExceptions Kyverno applies at home: none by default.

Source: github.com/kyverno/kyverno cmd/internal/{flag,engine}.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.config.yaml.documents import Document

    Json = dict[str, Any]

KIND: Final = "PolicyException"
_GROUPS: Final = ("kyverno.io", "policies.kyverno.io")
_ENABLED: Final = "enablePolicyException"
_NAMESPACE: Final = "exceptionNamespace"
_ALL: Final = "*"


def namespaces_of(deployment: Json) -> tuple[str, ...]:
    """Return where exceptions apply by the flags of Kyverno's *deployment*: ``*`` stands for everywhere."""
    match deployment:
        case {"spec": {"template": {"spec": {"containers": list(containers)}}}}:
            arguments = [one for each in containers for one in _arguments(each)]
        case _:
            return ()
    flags = dict(_flags(arguments))
    # As Go's strconv.ParseBool.
    is_enabled = flags.get(_ENABLED, "false") in ("1", "t", "T", "TRUE", "true", "True")
    namespace = flags.get(_NAMESPACE, "")
    return (namespace,) if is_enabled and namespace else ()


def _arguments(container: object) -> Iterator[str]:
    if isinstance(container, dict):
        for name in ("command", "args"):
            found = container.get(name)
            yield from (str(each) for each in found or ()) if isinstance(found, list) else ()


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the flags, the last one counts."""
    for index, each in enumerate(arguments):
        name, has_value, value = each.lstrip("-").partition("=")
        if not each.startswith("-") or name not in (_ENABLED, _NAMESPACE):
            continue
        if not has_value:
            value = "true" if name == _ENABLED else "".join(arguments[index + 1 : index + 2])
        yield name, value


def is_exception(document: Document) -> bool:
    """Whether *document* is an exception of Kyverno."""
    content = document.content or {}
    group = str(content.get("apiVersion")).rpartition("/")[0]
    return content.get("kind") == KIND and group in _GROUPS


def divide(
    documents: Iterable[Document], namespaces: Sequence[str] | None
) -> tuple[list[Document], list[str]]:
    """Return the *documents* without exceptions outside *namespaces*, and notes about exceptions.

    None: it is not known where they apply.
    """
    kept: list[Document] = []
    dropped = found = 0
    for one in documents:
        if not is_exception(one):
            kept.append(one)
            continue
        found += 1
        namespace = _namespace(one)
        if namespaces is None or _ALL in namespaces or namespace in namespaces:
            kept.append(one)
        else:
            dropped += 1
    if namespaces is None and found:
        flags = f"Kyverno applies its PolicyExceptions only with --{_ENABLED}, in --{_NAMESPACE}"
        remove = "which are not known here: remove those that do not apply from the files"
        name = "for those in the cluster, name the namespace in policies.exceptionNamespaces"
        return kept, [f"{flags}, {remove}, and {name}"]
    if dropped:
        where = " and ".join(namespaces or ()) or "no namespace"
        what = "PolicyException is" if dropped == 1 else "PolicyExceptions are"
        return kept, [f"{dropped} {what} left out: by its flags, Kyverno applies those of {where}"]
    return kept, []


def _namespace(document: Document) -> str:
    metadata = (document.content or {}).get("metadata")
    found = metadata.get("namespace") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""
