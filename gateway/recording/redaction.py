"""Requests and answers without secrets, for recordings that are shared.

``gateway.decisions.redaction`` has the values that are replaced. Here, additionally:

- values at configured paths are replaced;
- the marks have a key of the recording, and enough digits that no two values have the same one;
- a mark in ``data`` of a Secret is base64, as clients of the API server expect it there;
- of long texts only those are cut in which a credential was found;
- ``managedFields`` stay, except those of Secrets.

Most requests have nothing to replace. :func:`is_clean` finds that out from their JSON, in a tenth of the time
that parsing takes.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

import re2

from gateway.decisions.redaction import CREDENTIAL_NAME, Redactor, decoded, texts_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gateway.config.record_settings import JsonPath, RedactionRule

MARK_PREFIX: Final = "redacted-"
_MARK_BYTES: Final = 8
_MAX_SEARCHED: Final = 256
"""Secret values that are searched for in all texts of a review: 50 ns for each of them and each text."""

_CREDENTIAL_TEXTS: Final = (
    r'eyj[^".\s\\]{8,}\.[^".\s\\]{8,}\.'  # a JSON Web Token
    r"|private key"
    r'|://(?:[^\s/@"\\]|\\.)*:(?:[^\s/@"\\]|\\.)*@'  # credentials in a URL
    r'|(?:bearer|basic) [^\s"]'
    r"|(?:passw(?:or)?d|secret|token|api-?key)[=:]"
)
"""At least the texts that ``gateway.decisions.redaction`` replaces parts of, as JSON."""
_UNUSUAL: Final = (
    r"[\n\r]"  # would end the line of the recording
    r"|\\/"
    # An escape that Go's encoder does not write and that could hide a name. It writes \u0026, \u003c, \u003e,
    # \u2028, \u2029 and control characters.
    r"|\\u(?:[13-9a-f]|2[1-9a-f]|20[013-9a-f]|202[0-7a-f]|0[1-9a-f]|00[4-9a-f]|002[0-57-9a-f]|003[0-9abdf])"
    "|[\u0130\u0131]"  # which Python's re counts as i
)
_SUSPICIOUS: Final = re2.compile(
    r'(?i)"kind"\s*:\s*"secret"|"stringdata"|last-applied|/(?:applied|original)"'
    rf'|{CREDENTIAL_NAME}"\s*:\s*(?:"|\[\s*")'  # a field
    rf'|"name"\s*:\s*"(?:[^"\\]|\\.)*{CREDENTIAL_NAME}"'  # such as an environment variable
    rf"|{_CREDENTIAL_TEXTS}|{_UNUSUAL}"
)
_CREDENTIAL_IN_TEXT: Final = re2.compile(f"(?i){_CREDENTIAL_TEXTS}")


def is_clean(json: bytes) -> bool:
    """Whether nothing in *json* is replaced, learned or rewritten, apart from values at configured paths."""
    return _SUSPICIOUS.search(json) is None


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

    max_searched = _MAX_SEARCHED
    _keeps_managed_fields = True

    def __init__(self, marks: Marks, paths: Iterable[JsonPath]) -> None:
        """*paths* are those for the kind of the request, from its objects."""
        super().__init__(secret_names=True)
        self._marks = marks
        self._paths = tuple(paths)
        self.has_replaced = False

    @property
    def is_full(self) -> bool:
        """Whether there were too many secret values to search for all of them."""
        return len(self._searched) >= self.max_searched

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
        return _CREDENTIAL_IN_TEXT.search(text.encode(errors="surrogatepass")) is not None


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
