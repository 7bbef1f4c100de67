"""Requests and answers without secrets, for recordings that are shared.

``gateway.observe.decisions.redaction`` has the values that are replaced. Here, additionally:

- values at configured paths are replaced;
- the marks have a key of the recording, and enough digits that no two values have the same one;
- a mark in ``data`` of a Secret is base64, as clients of the API server expect it there;
- of long texts only those are cut in which a credential was found;
- ``managedFields`` stay, except those of Secrets.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

from gateway.observe.decisions.credential_forms import may_have_credentials
from gateway.observe.decisions.redaction import Redactor
from gateway.observe.decisions.secret_values import decoded, texts_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gateway.config.kinds.record_settings import JsonPath, RedactionRule

MARK_PREFIX: Final = "redacted-"
_MARK_BYTES: Final = 8


class Marks:
    """Replaces values by marks: equal values by equal marks, as long as the key is the same."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(key).digest()
        self.key_id = self("the key of a recording").removeprefix(MARK_PREFIX)
        """Equal for equal keys; the marks of two recordings can be compared if it is equal."""

    def __call__(self, text: str) -> str:
        """Return the mark of *text*."""
        content = text.encode(errors="surrogatepass")
        return MARK_PREFIX + hashlib.blake2b(content, digest_size=_MARK_BYTES, key=self._key).hexdigest()


class RecordingRedactor(Redactor):
    """Redacts the request and the answer of one review; pass all objects to :meth:`prepare` first."""

    _keeps_managed_fields = True

    def __init__(self, marks: Marks, paths: Iterable[JsonPath]) -> None:
        """*paths* are those for the kind of the request, from its objects."""
        super().__init__(secret_names=True)
        self._marks = marks
        self._paths = tuple(paths)
        self.has_replaced = False

    def prepare(self, document: object) -> None:
        """Replace the values at the configured paths in *document*, and note its secret values.

        Raises:
            RecursionError: it nests too deeply.
        """
        for path in self._paths:
            for container, key in _places(document, path):
                for text in texts_in(container[key]):
                    self.learn_text(text)
                container[key] = self.marked(container[key])
        self.learn(document)

    def _mark(self, text: str) -> str:
        self.has_replaced = True
        return self._marks(text)

    def _secret_data(self, value: object) -> object:
        if not isinstance(value, dict):
            return self.marked(value)
        return {
            name: base64.b64encode(self._mark(decoded(text) or text).encode()).decode()
            if isinstance(text, str)
            else self.marked(text)
            for name, text in value.items()
        }

    def _secret_metadata(self, metadata: dict[str, object]) -> object:
        self.has_replaced = self.has_replaced or "managedFields" in metadata
        return super()._secret_metadata({k: v for k, v in metadata.items() if k != "managedFields"})

    def _is_cut(self, text: str) -> bool:
        return may_have_credentials(text)


def paths_by_kind(rules: Iterable[RedactionRule]) -> Callable[[str], tuple[JsonPath, ...]]:
    """Return a function from a kind to the paths that *rules* have for it."""
    everywhere = [path for rule in rules if not rule.kinds for path in rule.paths]
    by_kind: dict[str, list[JsonPath]] = {}
    for rule in rules:
        for kind in rule.kinds:
            by_kind.setdefault(kind, list(everywhere)).extend(rule.paths)
    found = {kind: tuple(paths) for kind, paths in by_kind.items()}
    others = tuple(everywhere)
    return lambda kind: found.get(kind, others)


def _places(document: object, path: JsonPath) -> Iterator[tuple[Any, Any]]:
    """Yield container and key of each value at *path* in *document*; None in it is any key."""
    step, *rest = path
    keys: list[Any] = []
    if isinstance(document, dict):
        keys = list(document) if step is None else [step] if step in document else []
    elif isinstance(document, list) and step is None:
        keys = list(range(len(document)))
    for key in keys:
        if rest:
            yield from _places(document[key], tuple(rest))  # type: ignore[index]
        else:
            yield document, key
