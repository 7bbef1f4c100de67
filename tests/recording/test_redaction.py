"""What is recorded has no secret, and equal values stay equal."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.record_settings import RedactionRule, parse_path
from gateway.observe.decisions.credential_forms import is_clean
from gateway.observe.recording.redaction import MARK_PREFIX, Marks, RecordingRedactor, paths_by_kind
from tests.decisions.test_redaction import CANARY, ENCODED, HIDDEN, JWT, secret

MARKS = Marks(b"k" * 32)


def redacted(document: object, *paths: str) -> Any:
    redactor = RecordingRedactor(MARKS, [found for path in paths if (found := parse_path(path))])
    document = orjson.loads(orjson.dumps(document))
    redactor.prepare(document)
    return redactor.redacted(document)


def hidden_here(document: object) -> bool:
    # Managed fields have names of fields, and stay in all objects but Secrets.
    return "managedFields" not in orjson.dumps(document).decode()


@pytest.mark.parametrize("document", list(filter(hidden_here, HIDDEN)))
def test_a_secret_value_is_replaced_and_the_document_is_not_clean(document: object) -> None:
    text = orjson.dumps(redacted(document)).decode()
    assert CANARY not in text
    assert ENCODED not in text
    assert not is_clean(orjson.dumps(document))


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Pod", "spec": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": CANARY}]}}},
        {"kind": "Thing", "spec": {"proxy-authorization": CANARY}},
        {"kind": "Sealed", "spec": {"template": {"stringData": {"a": CANARY}}}},
        secret(metadata={"managedFields": [{"fieldsV1": {f'v:"{CANARY}"': {}}}]}),
        {"kind": "ConfigMap", "data": {"a": "x" * 9000 + f" --token={CANARY} " + "y" * 9000}},
    ],
)
def test_more_than_on_the_pages_is_replaced(document: object) -> None:
    assert CANARY not in orjson.dumps(redacted(document)).decode()
    assert not is_clean(orjson.dumps(document))


def test_data_of_a_secret_stays_base64_and_equal_to_the_same_text_elsewhere() -> None:
    found = redacted(secret(data={"a": ENCODED, "b": "//79/A=="}, stringData={"c": CANARY}))
    mark = found["stringData"]["c"]
    assert mark.startswith(MARK_PREFIX)
    assert base64.b64decode(found["data"]["a"]).decode() == mark
    assert base64.b64decode(found["data"]["b"]).decode().startswith(MARK_PREFIX)


def test_marks_depend_on_value_and_key() -> None:
    assert Marks(b"a" * 16)("x") == Marks(b"a" * 16)("x") != Marks(b"a" * 16)("y")
    assert Marks(b"a" * 16)("x") != Marks(b"b" * 16)("x")
    assert Marks(b"a" * 16).key_id != Marks(b"b" * 16).key_id


def test_values_at_configured_paths_are_replaced_wherever_they_occur() -> None:
    pod = {
        "metadata": {"annotations": {"a.b/c": "four4444", "note": "is seven777"}},
        "spec": {"containers": [{"env": [{"name": "A", "value": "seven777"}, {"name": "B"}]}, {}]},
    }
    found = redacted(pod, "$.spec.containers[*].env[*].value", "metadata.annotations['a.b/c']", "spec.none")
    text = orjson.dumps(found).decode()
    assert "seven777" not in text
    assert "four4444" not in text
    assert found["spec"]["containers"][0]["env"][0] == {"name": "A", "value": MARKS("seven777")}
    assert found["metadata"]["annotations"]["note"] == f"is {MARKS('seven777')}"


def test_paths_are_those_of_the_kind_and_of_all_kinds() -> None:
    paths = paths_by_kind([RedactionRule((("a",),)), RedactionRule((("b", None),), ("Pod", "Job"))])
    assert paths("Pod") == (("a",), ("b", None))
    assert paths("Other") == (("a",),)


@pytest.mark.parametrize("text", ["", "$", "a..b", "a[0]", "$..a", "a b", "['a", "a[*]b"])
def test_an_unsupported_path_is_none(text: str) -> None:
    assert parse_path(text) is None


def test_a_long_text_without_a_credential_stays() -> None:
    text = "word " * 2000
    assert redacted({"kind": "ConfigMap", "data": {"a": text}}) == {"kind": "ConfigMap", "data": {"a": text}}


_WORDS = st.sampled_from(
    [
        *("a", "data", "stringData", "kind", "metadata", "annotations", "name", "value", "env", "token"),
        *(
            "Secret",
            "items",
            "DB_PASSWORD",
            "passwords",
            "apiKey",
            "managedFields",
            "x/last-applied",
            "a/applied",
        ),
        *("Authorization", "cookie", "private_key-data", "pa\u017fsword", "to\u212aen", "pr\u0131vate key"),
        *(
            JWT,
            "-----BEGIN RSA PRIVATE KEY-----",
            "http://a:b@c",
            'http://a:"b@c',
            "Bearer abcdefgh1",
            "basic x",
        ),
        *("password=x", "--api-key: y", "a\nb", "\\", '"', "/", "\u2028", "\u00e9", "<&>"),
    ]
)
_TEXTS = _WORDS | st.text(max_size=6) | st.lists(_WORDS | st.text(max_size=3), max_size=4).map("".join)
_VALUES = st.recursive(
    st.sampled_from([None, 1, 1.5, True]) | _TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_TEXTS, values, max_size=4),
    max_leaves=12,
)


@given(_VALUES)
def test_a_clean_document_is_what_redaction_leaves_unchanged(document: object) -> None:
    if is_clean(orjson.dumps(document)):
        assert redacted(document) == document
        redactor = RecordingRedactor(MARKS, ())
        redactor.prepare(document)
        assert not redactor._repeated
        assert not redactor._quotations._values


@given(_VALUES)
def test_a_clean_document_is_clean_in_other_spellings_too(document: object) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
        if is_clean(text.encode()):
            assert redacted(document) == document


@given(_VALUES, _VALUES, st.booleans(), st.lists(_TEXTS, max_size=3))
def test_data_of_a_secret_is_nowhere_in_any_document(
    around: object, data: object, encoded: bool, words: list[str]
) -> None:
    inner = secret(data={"key": ENCODED if encoded else CANARY, "other": data})
    document = {"around": around, "items": [inner, {"copy": CANARY, "again": f"<{ENCODED}>"}], "words": words}
    text = orjson.dumps(redacted(document)).decode()
    assert CANARY not in text
    assert ENCODED not in text
