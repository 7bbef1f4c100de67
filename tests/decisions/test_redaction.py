"""No secret is in an object or a text after redaction."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.redaction import MAX_TEXT_CHARS, Redactor, mark

CANARY = "CaNaRy-4711"
ENCODED = base64.b64encode(CANARY.encode()).decode()
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


def redacted(document: object, *, secret_names: bool = True) -> Any:
    redactor = Redactor(secret_names=secret_names)
    redactor.learn(document)
    return redactor.redacted(document)


def secret(**members: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "type": "Opaque", **members}


HIDDEN: list[object] = [
    secret(data={"a": ENCODED}),
    secret(stringData={"a": CANARY}),
    secret(data={"a": ENCODED}, metadata={"annotations": {"note": f"is {CANARY}", "copy": ENCODED}}),
    secret(metadata={"annotations": {"compressed": CANARY + "x" * 300}}),
    secret(data=CANARY, stringData=[CANARY, {"a": 1, "b": CANARY}]),
    {"kind": "List", "items": [secret(data={"a": ENCODED})]},
    {
        "kind": "Pod",
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": CANARY}},
    },
    {"kind": "Pod", "metadata": {"managedFields": [{"manager": CANARY}]}},
    {"kind": "Pod", "spec": {"containers": [{"env": [{"name": "DB_PASSWORD", "value": CANARY}]}]}},
    {"kind": "Pod", "spec": {"containers": [{"args": [f"--password={CANARY}"]}]}},
    {"kind": "TokenRequest", "status": {"token": CANARY}},
    {"kind": "TokenReview", "spec": {"token": CANARY}},
    {"kind": "Thing", "spec": {"apiKey": CANARY, "tokens": [CANARY]}},
    {"kind": "ConfigMap", "data": {"url": f"postgres://admin:{CANARY}@db/x"}},
    {"kind": "ConfigMap", "data": {"header": f"Authorization: Bearer {CANARY}"}},
]


@pytest.mark.parametrize("document", HIDDEN)
def test_a_secret_value_is_replaced(document: object) -> None:
    text = orjson.dumps(redacted(document)).decode()
    assert CANARY not in text
    assert ENCODED not in text


@pytest.mark.parametrize(
    "text", [JWT, f"token {JWT}.", "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"]
)
def test_a_text_with_the_form_of_a_credential_is_replaced(text: str) -> None:
    found = redacted({"kind": "ConfigMap", "data": {"a": text}})["data"]["a"]
    assert JWT not in found
    assert "abc" not in found
    assert "(redacted " in found


def test_ordinary_values_stay() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"team": "a"}, "annotations": {"owner": "a@b.c"}},
        "spec": {
            "automountServiceAccountToken": False,
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [{"name": "v", "secret": {"secretName": "tls"}}],
            "containers": [
                {
                    "name": "c",
                    "image": "registry.example/c:1",
                    "env": [
                        {"name": "PROXY", "value": "http://proxy:3128"},
                        {
                            "name": "PASSWORD",
                            "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}},
                        },
                    ],
                }
            ],
        },
    }
    assert redacted(pod) == pod


def test_a_change_of_a_value_can_be_seen() -> None:
    first, again, other = (redacted(secret(data={"a": value}))["data"]["a"] for value in ("x", "x", "y"))
    assert first == again != other


def test_the_name_of_a_secret_is_left_out_unless_it_is_configured() -> None:
    assert redacted(secret())["metadata"] == {"name": "db"}
    assert redacted(secret(), secret_names=False)["metadata"] == {}


def test_values_are_replaced_in_texts_too() -> None:
    redactor = Redactor(secret_names=True)
    redactor.learn(secret(data={"a": ENCODED}))
    assert redactor.text(f"the password {CANARY} is weak") == f"the password {mark(CANARY)} is weak"


def test_a_long_text_is_cut_and_a_change_of_its_rest_can_be_seen() -> None:
    texts = ["x" * MAX_TEXT_CHARS + rest for rest in ("one", "two")]
    first, second = (redacted({"a": text})["a"] for text in texts)
    assert first != second
    assert len(first) < MAX_TEXT_CHARS + 40


_NAMES = st.sampled_from(
    ["a", "data", "stringData", "kind", "metadata", "annotations", "name", "value", "env", "token", "items"]
)
_VALUES = st.recursive(
    st.sampled_from([None, 1, True, "Secret", "Pod", "token", "word"]) | st.text(max_size=8),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_NAMES, values, max_size=4),
    max_leaves=12,
)


@given(_VALUES, _VALUES, st.booleans())
def test_data_of_a_secret_is_nowhere_in_any_document(around: object, data: object, encoded: bool) -> None:
    inner = secret(data={"key": ENCODED if encoded else CANARY, "other": data})
    document = {"around": around, "items": [inner, {"copy": CANARY, "again": f"<{ENCODED}>"}]}
    text = orjson.dumps(redacted(document)).decode()
    assert CANARY not in text
    assert ENCODED not in text
