"""Objects and texts without secrets, for records that people read.

Values are replaced by a mark with a keyed hash: equal values have equal marks in one process, so a change of
a value can be seen, and a value cannot be guessed from its mark. Replaced are

- ``data`` of Secrets and ``stringData``, at any depth, and long annotations of Secrets;
- texts of fields and of environment variables with names such as ``password`` and ``token``, which are also
  the tokens of TokenRequests and TokenReviews;
- annotations that contain an earlier version of the object, such as that of ``kubectl apply``;
- parts of texts that have the form of a JSON Web Token, a private key, credentials in a URL, an Authorization
  header, or an option such as ``--password=…``;
- the rest of long texts;
- each of these values wherever it occurs again in the same decision, also in base64 or decoded from it.

``metadata.managedFields`` is left out. All other values stay, among them other environment variables and the
data of ConfigMaps: a credential in one of these that has neither such a name nor such a form is shown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.core.large import LARGE_BYTES
from gateway.decisions.record import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.core.review import AdmissionRequest, Resource
    from gateway.decisions.record import DecisionRecord

_KEY: Final = os.urandom(16)
CREDENTIAL_NAME: Final = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|authorization|cookie"
    r"|(?:api|access|private|signing|encryption)[-_.]?key)(?:s|[-_.]?value|[-_.]?data)?"
)
"""Regular expression of the end of a name, without regard to case."""
_CREDENTIAL_NAME: Final = re.compile(CREDENTIAL_NAME + r"\Z", re.IGNORECASE)
_LONGEST_NAME: Final = 253
"""Of a field or an environment variable. A longer one is no name, and would fill the cache."""
_CREDENTIAL: Final = re.compile(
    r"""
    (?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*                                        # a JSON Web Token
    | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----[^-]*(?:-----END[ A-Z]{0,60}-----)?
    | (?<=://)[^\s/@:]{0,200}:[^\s/@]{1,500}(?=@)
    | (?<=bearer[ ])[\w.~+/=-]{8,} | (?<=basic[ ])[\w+/=-]{8,}
    | (?:(?<=password[=:])|(?<=passwd[=:])|(?<=secret[=:])|(?<=token[=:])|(?<=api-key[=:])|(?<=apikey[=:]))
      \s?[^\s,;&"']+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_HINTS: Final = (
    "eyj",
    "private key",
    "://",
    "bearer ",
    "basic ",
    "password",
    "passwd",
    "secret",
    "token",
    "api",
)
"""Every text that ``_CREDENTIAL`` finds contains one of these, in lower case. Most texts contain none."""
_SECRET_KINDS: Final = ("Secret", "TokenRequest", "TokenReview")
_EARLIER_VERSION: Final = re.compile(r"last-applied|/applied\Z|/original\Z")
_SHORT_ANNOTATION: Final = 256
"""A longer annotation of a Secret may contain a version of it in any encoding."""
MAX_TEXT_CHARS: Final = 4096
"""A longer text is cut, and the rest of it replaced by a mark. To search a text of this length for
credentials takes two milliseconds."""
MIN_REPEATED: Final = 6
"""Characters of a value that is replaced wherever it occurs: a shorter one is a word of ordinary text."""
MAX_REPEATED: Final = 1024
"""Values that are replaced where they are a whole text."""
MAX_SEARCHED: Final = 64
"""Values that are replaced as parts of texts too: a search for one takes 50 ns a text."""
MAX_NAME_CHARS: Final = 512
MAX_MESSAGE_CHARS: Final = 8192
"""Of a record; longer texts are cut."""
_NOT_SEARCHED: Final = "(left out: it was not searched for values of the object)"


def mark(text: str) -> str:
    """Return the mark that replaces *text*."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=4, key=_KEY)
    return f"(redacted {digest.hexdigest()})"


def is_for_secrets(request: AdmissionRequest) -> bool:
    """Whether the object of *request* has secrets of which a policy may quote one in its message."""
    return request.kind[2] in _SECRET_KINDS


class Redactor:
    """Redacts the objects and texts of one decision; pass all objects to :meth:`learn` first."""

    max_searched = MAX_SEARCHED
    _keeps_managed_fields = False

    def __init__(self, *, secret_names: bool) -> None:
        """*secret_names* is whether the names of Secrets stay."""
        self._secret_names = secret_names
        self._repeated: dict[str, str] = {}
        """Values that are replaced where they are a whole text, with their marks."""
        self._searched: list[str] = []
        """Those that are replaced wherever they occur."""
        self._leaves_out_messages = False

    def learn(self, document: object) -> None:
        """Note the secret values of *document*, so that they are replaced in all objects and texts.

        Raises:
            RecursionError: it nests too deeply.
        """
        for text in _secret_values(document):
            self.learn_text(text)

    def learn_text(self, text: str) -> None:
        """Note the secret *text*, so that it is replaced in all objects and texts."""
        self._note(text)
        self._note(decoded(text))
        self._note(base64.b64encode(text.encode(errors="surrogatepass")).decode())

    def learn_request(self, request: AdmissionRequest) -> None:
        """Note the secret values of the objects of *request*, if it is for an object that is a secret.

        Messages about a large one are left out.
        """
        if not is_for_secrets(request):
            return
        try:
            if len(request.json) > LARGE_BYTES:
                raise RecursionError
            for document in (request.object, request.old_object):
                self.learn({**(document or {}), "kind": request.kind[2]})
        except RecursionError:
            self.leave_out_messages()

    def leave_out_messages(self) -> None:
        """Leave out the messages of records."""
        self._leaves_out_messages = True

    def record(self, record: DecisionRecord) -> DecisionRecord:
        """Return *record* with texts of bounded length and without secrets."""
        return record._replace(
            uid=_cut(record.uid),
            user=_cut(record.user),
            kind=_cut_names(record.kind),
            resource=_cut_names(record.resource),
            sub_resource=_cut(record.sub_resource),
            namespace=_cut(record.namespace),
            name=_cut(record.name) if self._secret_names or not is_secret(record.kind) else "",
            message=self._message(record.message),
            webhooks=tuple(
                one._replace(message=self._message(one.message)) if one.message else one
                for one in record.webhooks
            ),
        )

    def _message(self, text: str) -> str:
        if self._leaves_out_messages and text:
            return _NOT_SEARCHED
        return self.text(_cut(text, MAX_MESSAGE_CHARS))

    def _note(self, text: str) -> None:
        if len(text) >= MIN_REPEATED and len(self._repeated) < MAX_REPEATED and text not in self._repeated:
            self._repeated[text] = self._mark(text)
            if len(self._searched) < self.max_searched:
                self._searched.append(text)

    def _mark(self, text: str) -> str:
        return mark(text)

    def redacted(self, document: object) -> object:
        """Return a copy of *document* without secrets.

        Raises:
            RecursionError: it nests too deeply.
        """
        if isinstance(document, str):
            return self.text(document)
        if isinstance(document, list):
            return [self.redacted(item) for item in document]
        if not isinstance(document, dict):
            return document
        is_secret, is_credential = document.get("kind") == "Secret", _is_credential(document)
        redacted: dict[str, object] = {}
        for name, value in document.items():
            if is_secret and name == "metadata" and isinstance(value, dict):
                redacted[name] = self._secret_metadata(value)
            elif name == "managedFields":
                if self._keeps_managed_fields:
                    redacted[name] = self.redacted(value)
            elif name == "annotations" and isinstance(value, dict):
                redacted[self.text(name)] = {
                    self.text(key): self._annotation(key, text) for key, text in value.items()
                }
            elif is_secret and name == "data":
                redacted[name] = self._secret_data(value)
            elif name == "stringData" or (is_credential and name == "value"):
                redacted[name] = self.marked(value)
            elif _is_credential_name(name) and _is_text(value):
                redacted[self.text(name)] = self.marked(value)
            else:
                redacted[self.text(name)] = self.redacted(value)
        return redacted

    def marked(self, value: object) -> object:
        """Return *value* with each text and number replaced."""
        if isinstance(value, dict):
            return {name: self.marked(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.marked(item) for item in value]
        return value if value is None else self._mark(str(value))

    def _secret_data(self, value: object) -> object:
        return self.marked(value)

    def _secret_metadata(self, metadata: dict[str, object]) -> object:
        kept = dict(metadata)
        if not self._secret_names:
            for name in ("name", "generateName"):
                kept.pop(name, None)
        annotations = kept.get("annotations")
        if isinstance(annotations, dict):
            kept["annotations"] = {
                key: self._mark(text) if isinstance(text, str) and len(text) > _SHORT_ANNOTATION else text
                for key, text in annotations.items()
            }
        return self.redacted(kept)

    def _annotation(self, key: str, value: object) -> object:
        if isinstance(value, str) and (_EARLIER_VERSION.search(key) or _is_credential_name(key)):
            return self._mark(value)
        return self.redacted(value)

    def text(self, text: str) -> str:
        """Return *text* without secrets."""
        if len(text) < MIN_REPEATED:
            return text
        if (found := self._repeated.get(text)) is not None:
            return found
        for value in self._searched:
            if value in text:
                text = text.replace(value, self._repeated[value])
        if len(text) > MAX_TEXT_CHARS and self._is_cut(text):
            text = f"{text[:MAX_TEXT_CHARS]}… {self._mark(text[MAX_TEXT_CHARS:])}"
        lowered = text.lower()
        if any(hint in lowered for hint in _HINTS):
            text = _CREDENTIAL.sub(lambda found: self._mark(found[0]), text)
        return text

    def _is_cut(self, text: str) -> bool:
        """Whether *text*, which is long, is cut."""
        return True


def _cut(text: str, limit: int = MAX_NAME_CHARS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _cut_names(names: Resource) -> Resource:
    group, version, name = names
    return _cut(group), _cut(version), _cut(name)


def _secret_values(document: object) -> Iterator[str]:
    """Yield the texts that :meth:`Redactor.redacted` replaces as a whole, apart from annotations."""
    if isinstance(document, list):
        for item in document:
            yield from _secret_values(item)
    elif isinstance(document, dict):
        is_secret, is_credential = document.get("kind") == "Secret", _is_credential(document)
        for name, value in document.items():
            if (
                (is_secret and name == "data")
                or name == "stringData"
                or (is_credential and name == "value")
                or (_is_credential_name(name) and _is_text(value))
            ):
                yield from texts_in(value)
            elif name != "managedFields":
                yield from _secret_values(value)


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in *value*, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)


@lru_cache(1024)
def _is_credential_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _CREDENTIAL_NAME.search(name) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _is_credential(document: dict[str, object]) -> bool:
    """Whether *document* is a named value, such as an environment variable, with the name of a credential."""
    name = document.get("name")
    return isinstance(name, str) and _is_credential_name(name)


def decoded(text: str) -> str:
    """Return what *text* is the base64 of; empty if it is not base64 of a text."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
