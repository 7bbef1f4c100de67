"""Objects and texts without secrets, for records that people read.

Values are replaced by a mark with a keyed hash: equal values have equal marks in one process, so a change of
a value can be seen, and a value cannot be guessed from its mark. Replaced are

- ``data`` of Secrets and ``stringData``, at any depth, and annotations of Secrets, except short ones of
  Kubernetes, Helm and cert-manager;
- texts of fields and of environment variables with names such as ``password`` and ``token``, which are also
  the tokens of TokenRequests and TokenReviews, and texts in mappings and lists with such a name, apart from
  references such as ``secretKeyRef``;
- annotations that contain an earlier version of the object, such as that of ``kubectl apply``, and the secret
  values of that version;
- arguments after options such as ``--password`` and ``-u``, passwords in the command lines of well-known
  programs (``gateway.observe.decisions.command_lines``), and parts of texts that have the form of a
  credential (``gateway.observe.decisions.credential_forms``);
- the rest of long texts;
- each of these values wherever it occurs again in the same decision, however it is quoted
  (``gateway.observe.decisions.quotations``).

``metadata.managedFields`` is left out. All other values stay, among them other environment variables and the
data of ConfigMaps: a credential in one of these that has neither such a name nor such a form is shown.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from typing import TYPE_CHECKING, Final

from gateway.observe.decisions.credential_forms import (
    credentials_of_arguments,
    is_clean,
    is_credential_name,
    is_named_credential,
    is_reference,
    without_credentials,
)
from gateway.observe.decisions.quotations import MIN_CHARS, Quotations, TooManyComparisonsError
from gateway.observe.decisions.rate import TokenBucket
from gateway.observe.decisions.record import is_secret
from gateway.observe.decisions.secret_values import (
    EARLIER_VERSION,
    Encoded,
    as_bytes,
    credentials_of_json,
    decoded,
    is_private,
    json_of,
    secret_values,
    texts_in,
)
from gateway.pure.core.large import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gateway.observe.decisions.record import DecisionRecord
    from gateway.observe.decisions.secret_values import Known
    from gateway.pure.core.review import AdmissionRequest, Resource

_KEY: Final = os.urandom(16)
_SECRET_KINDS: Final = ("Secret", "TokenRequest", "TokenReview")
MAX_TEXT_CHARS: Final = 4096
"""A longer text is cut, and the rest of it replaced by a mark. To search a text of this length for
credentials takes two milliseconds."""
MIN_REPEATED: Final = 4
"""Characters of a value that is replaced where it is a whole text."""
MAX_REPEATED: Final = 1024
"""Values that are replaced where they are a whole text."""
MAX_NAME_CHARS: Final = 512
MAX_MESSAGE_CHARS: Final = 8192
"""The longest message of a record. Longer ones are cut."""
_SEARCHED_BEYOND: Final = 1024
"""Characters after the cut that are searched, so that a value at the cut is found."""
_MAX_CHECKED_BYTES: Final = 1024 * 1024
"""The largest object whose names are checked, which takes eight milliseconds."""
MAX_SEARCHED_CHARS: Final = 48 * 1024
"""Characters of all messages of a record that are searched. The rest is left out."""
SEARCHES_PER_SECOND: Final = 20
"""Denials of objects with secrets whose values are searched for in the messages, which takes ten milliseconds
each with objects of ``_SEARCH_BYTES``. The messages of further ones are left out."""
SMALL_SEARCH: Final = 0.05
"""The part of such a search that one of a small object takes."""
_SEARCH_BYTES: Final = 16 * 1024
NOT_SEARCHED: Final = "(left out: it was not searched for values of the object)"


def mark(text: str) -> str:
    """Return the mark that replaces *text*."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=4, key=_KEY)
    return f"(redacted {digest.hexdigest()})"


def has_secrets(request: AdmissionRequest) -> bool:
    """Whether the objects of *request* have values that :meth:`Redactor.learn_request` notes."""
    size = len(request.json)
    return request.kind[2] in _SECRET_KINDS or size > _MAX_CHECKED_BYTES or not is_clean(request.json)


def has_texts(record: DecisionRecord) -> bool:
    """Whether *record* has a message, which may quote a value."""
    return bool(record.message) or any(one.message for one in record.webhooks)


class Redactor:
    """Redacts the objects and texts of one decision; pass all objects to :meth:`learn` first."""

    _keeps_managed_fields = False

    def __init__(self, *, secret_names: bool) -> None:
        """*secret_names* is whether the names of Secrets stay."""
        self._secret_names = secret_names
        self._repeated: dict[str, str] = {}
        """Values that are replaced where they are a whole text, with their marks."""
        self._quotations = Quotations()
        self._messages: dict[str, str] = {}
        """Without secrets: the deciding webhook has the message of the record."""
        self._searched_chars = 0
        self._leaves_out_messages = False
        self._stages: dict[int, tuple[object, object]] | None = None
        """See :meth:`redacted_stages`: lists and maps by their identity, as they are and without secrets."""

    @property
    def is_full(self) -> bool:
        """Whether there were too many secret values to search for all of them."""
        return self._quotations.is_full or len(self._repeated) >= MAX_REPEATED

    def learn(self, document: object, known: Known | None = None) -> None:
        """Note the secret values of *document*, so that they are replaced in all objects and texts.

        *known* has the lists and maps that were learned from before, and gets those of *document*.

        Raises:
            RecursionError: it nests too deeply.
        """
        for text in secret_values(document, known):
            self.learn_text(text, is_encoded=isinstance(text, Encoded))

    def learn_text(self, text: str, *, is_encoded: bool = False) -> None:
        """Note the secret *text*, so that it is replaced in all objects and texts.

        *is_encoded* is whether it has to be base64. Otherwise it may be.
        """
        plain = decoded(text)
        values = {plain or as_bytes(text) or text} if is_encoded else {text, plain}
        for one in (text, plain, _base64(text)):
            if len(one) >= MIN_REPEATED and len(self._repeated) < MAX_REPEATED and one not in self._repeated:
                self._repeated[one] = self._mark(one)
        for one in values:
            self._quotations.add(one)
            for inner in credentials_of_json(one):
                self._quotations.add(inner)
            for part in texts_in(json_of(one)):
                self._quotations.add_part(part)

    def learn_request(self, request: AdmissionRequest) -> None:
        """Note the secret values of the objects of *request*. Messages about a large one are left out."""
        if not has_secrets(request):
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
            message=self._record_message(record.message),
            webhooks=tuple(
                one._replace(message=self._record_message(one.message)) if one.message else one
                for one in record.webhooks
            ),
        )

    def _record_message(self, text: str) -> str:
        if not text:
            return text
        found = self._messages.get(text)
        if found is None:
            # Cut after the search: of a value that was cut before, a beginning would be left.
            searched = text[: MAX_MESSAGE_CHARS + _SEARCHED_BEYOND]
            found = self._messages[text] = _cut(self.message(searched), MAX_MESSAGE_CHARS)
        return found

    def message(self, text: str) -> str:
        """Return *text*, which is for people, without secrets; a note if it was not searched for them."""
        if not self._quotations.is_empty:
            self._searched_chars += len(text)
        if self._leaves_out_messages or self.is_full or self._searched_chars > MAX_SEARCHED_CHARS:
            return NOT_SEARCHED if text else text
        try:
            return self._text(text, is_message=True)
        except TooManyComparisonsError:
            self.leave_out_messages()
            return NOT_SEARCHED

    def _mark(self, text: str) -> str:
        return mark(text)

    def redacted_stages(self, documents: Iterable[object]) -> Iterator[object]:
        """Yield a copy of each of *documents* without secrets. They are one object at several points.

        What the documents share in memory, the copies share, too, and is redacted once.

        Raises:
            RecursionError: one of them nests too deeply.
        """
        self._stages = {}
        try:
            for document in documents:
                yield self.redacted(document)
        finally:
            self._stages = None

    def redacted(self, document: object) -> object:
        """Return a copy of *document* without secrets.

        Raises:
            RecursionError: it nests too deeply.
        """
        if isinstance(document, str):
            return self.text(document)
        if not isinstance(document, list | dict):
            return document
        if self._stages is None:
            return self._redacted_container(document)
        found = self._stages.get(id(document))
        if found is None:
            found = self._stages[id(document)] = document, self._redacted_container(document)
        return found[1]

    def _redacted_container(self, document: list[object] | dict[str, object]) -> object:
        if isinstance(document, list):
            return self._redacted_list(document)
        is_secret, is_credential = document.get("kind") == "Secret", is_named_credential(document)
        redacted: dict[str, object] = {}
        for name, value in document.items():
            if is_secret and name == "metadata" and isinstance(value, dict):
                redacted[name] = self._secret_metadata(value)
            elif name == "managedFields" and not self._keeps_managed_fields:
                continue
            elif name == "annotations" and isinstance(value, dict):
                redacted[self._name(name)] = {
                    self._name(key): self._annotation(key, text) for key, text in value.items()
                }
            elif is_secret and name == "data":
                redacted[name] = self._secret_data(value)
            elif name == "stringData" or (is_credential and name == "value"):
                redacted[name] = self.marked(value)
            elif is_credential_name(name):
                redacted[self._name(name)] = self._below_credential(value)
            elif name == "args" and isinstance(value, list):
                redacted[name] = self._redacted_list(value, document.get("command"))
            else:
                redacted[self._name(name)] = self.redacted(value)
        return redacted

    def _redacted_list(self, items: list[object], command: object = None) -> list[object]:
        """Return *items* without secrets; *command* has the program whose arguments they are."""
        return [
            f"{item[: len(item) - len(found)]}{self._mark(found)}"
            if isinstance(item, str) and found
            else self.redacted(item)
            for item, found in zip(items, credentials_of_arguments(items, command), strict=True)
        ]

    def _below_credential(self, value: object) -> object:
        """Return *value*, a field with the name of a credential, with each text replaced but references."""
        if isinstance(value, str):
            return self._mark(value)
        if isinstance(value, list):
            return [self._below_credential(item) for item in value]
        if isinstance(value, dict):
            return {
                self._name(key): self.redacted(item) if is_reference(key) else self._below_credential(item)
                for key, item in value.items()
            }
        return value

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
                key: self._mark(text) if isinstance(text, str) and is_private(key, text) else text
                for key, text in annotations.items()
            }
        return self.redacted(kept)

    def _annotation(self, key: str, value: object) -> object:
        if isinstance(value, str) and (EARLIER_VERSION.search(key) or is_credential_name(key)):
            return self._mark(value)
        return self.redacted(value)

    def text(self, text: str) -> str:
        """Return *text* of an object without secrets."""
        try:
            return self._text(text, is_message=False)
        except TooManyComparisonsError:
            return NOT_SEARCHED

    def _name(self, name: str) -> str:
        """Return the *name* of a member without secrets; a short one is that of a field."""
        return name if len(name) < MIN_CHARS else self.text(name)

    def _text(self, text: str, *, is_message: bool) -> str:
        if len(text) < MIN_REPEATED and not is_message:
            return text
        if (found := self._repeated.get(text)) is not None:
            return found
        text = self._quotations.replaced(text, self._mark, is_message=is_message)
        if len(text) > MAX_TEXT_CHARS and not is_message and self._is_cut(text):
            text = f"{text[:MAX_TEXT_CHARS]}… {self._mark(text[MAX_TEXT_CHARS:])}"
        return without_credentials(text, self._mark)

    def _is_cut(self, text: str) -> bool:
        """Whether *text*, which is long, is cut."""
        return True


class Redactors:
    """Makes the redactors of many decisions: the searches for secret values take a part of the time only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._searches = TokenBucket(SEARCHES_PER_SECOND, SEARCHES_PER_SECOND)

    def of(self, request: AdmissionRequest, *, secret_names: bool) -> Redactor:
        """Return the redactor of a decision about *request*, without what webhooks added to the object."""
        redactor = Redactor(secret_names=secret_names)
        if has_secrets(request):
            cost = min(SMALL_SEARCH + len(request.json) / _SEARCH_BYTES, SEARCHES_PER_SECOND)
            if self._searches.take(self._clock(), cost=cost):
                redactor.learn_request(request)
            else:
                redactor.leave_out_messages()
        return redactor

    def redacted(
        self, record: DecisionRecord, request: AdmissionRequest, *, secret_names: bool
    ) -> DecisionRecord:
        """Return the *record* of a decision about *request* without secrets."""
        if has_texts(record):
            return self.of(request, secret_names=secret_names).record(record)
        return Redactor(secret_names=secret_names).record(record)


def _cut(text: str, limit: int = MAX_NAME_CHARS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _cut_names(names: Resource) -> Resource:
    group, version, name = names
    return _cut(group), _cut(version), _cut(name)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode(errors="surrogatepass")).decode()
