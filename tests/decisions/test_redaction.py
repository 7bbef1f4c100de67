"""No secret is in an object or a text after redaction."""

from __future__ import annotations

import base64
import shlex
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.decisions.credential_forms import without_credentials
from gateway.observe.decisions.redaction import MAX_TEXT_CHARS, Redactor, mark

CANARY = "CaNaRy-4711"
ENCODED = base64.b64encode(CANARY.encode()).decode()
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


def redacted(document: object, *, secret_names: bool = True) -> Any:
    redactor = Redactor(secret_names=secret_names)
    redactor.learn(document)
    return redactor.redacted(document)


def secret(**members: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "type": "Opaque", **members}


LINES = [
    f"mysql -h db -uroot -p{CANARY} -e 'select 1' && true",
    f"/usr/bin/mysqladmin --user root -p'{CANARY} x' ping",
    f'mariadb-dump -p"{CANARY}" db > x.sql',
    f"mysqldump -u root -p {CANARY} db",
    f"sshpass -p {CANARY} ssh -p 2222 h",
    f"sshpass -ev -p{CANARY} scp -p file h:",
    f'sh -c "redis-cli -a {CANARY} ping"',
    f"mongosh -u root -p {CANARY} --eval 1; mongosh -u root -p{CANARY}",
    f"/opt/mssql-tools/bin/sqlcmd -S localhost -U sa -P {CANARY} -Q 'SELECT 1'",
    f"ldapsearch -x -D cn=admin -w {CANARY}",
    f"cd /x; docker login -u x -p {CANARY} r.example",
    f"helm registry login r.example -u x -p {CANARY}",
    f"mysql -h mysql -p{CANARY}",
    f"['mysql', '-u', 'root', '-p{CANARY}']",
    f'["mysqladmin", "-p", "{CANARY}", "ping"]',
    f'{{"args": "mysql -p\\"{CANARY}\\" x"}}',
    f"mysql -e 1 || sshpass -p {CANARY} mysql -p{CANARY}",
]
"""Command lines with a password after an option of one letter."""
PLAIN_LINES = [
    "mysql:8.0 -p 8080",
    "nc -z -h mysql -p 3306",
    "mysql --port 3306 --protocol tcp",
    "docker run -p 8080:80 mysql",
    "sshpass -f /run/pw ssh -p 2222 h",
    "sshpass -e scp -p file host:x",
    "mysql -p$MYSQL_ROOT_PASSWORD -e 1",
    'mysql -p"${MYSQL_ROOT_PASSWORD}" -e 1',
    "mysql -p$(cat</run/secrets/pw) -e 1",
    "mysql -p`cat</run/secrets/pw` -e 1",
    "redis-cli -a $REDIS_PASSWORD ping",
    "redis-cli ping -a",
    "mkdir -p /var/lib/mysql && chown -R mysql /var/lib/mysql",
    "cp -a /a /b",
]
HIDDEN: list[object] = [
    *({"kind": "Pod", "spec": {"containers": [{"command": ["sh", "-c", line]}]}} for line in LINES),
    *(
        {"kind": "Pod", "spec": {"containers": [{"command": command, "args": arguments}]}}
        for command, arguments in (
            (["mysql", "-uroot", f"-p{CANARY}"], []),
            (["/usr/bin/mysqldump", "-u", "root"], [f"-p{CANARY}", "db"]),
            (["timeout", "5", "mysqladmin", "-p", CANARY], ["ping"]),
            (["sshpass", "-v", "-p", CANARY, "ssh", "-p", "2222", "h"], []),
            (["redis-cli", "-a", CANARY, "ping"], []),
            (["sqlcmd"], ["-U", "sa", "-P", CANARY]),
            (["docker", "--debug", "login", "-u", "x", "-p", CANARY], []),
            (["docker", "login", "-u", "x", f"-p{CANARY}"], []),
        )
    ),
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
    secret(metadata={"annotations": {"note": CANARY}}),
    {"kind": "Thing", "spec": {"secretKey": CANARY}},
    {"kind": "Thing", "spec": {"pass": CANARY}},
    {"kind": "Thing", "spec": {"PASSWORD1": CANARY, "token_2": CANARY, "bindpw": CANARY, "rootPW": CANARY}},
    {"kind": "Thing", "spec": {"sessionKey": CANARY, "shared-key": CANARY, "deployKey": CANARY}},
    {"kind": "ConfigMap", "data": {"env": f"SSHPASS={CANARY}\nPASSWORD_2={CANARY}\nbindpw: {CANARY}"}},
    {"kind": "Thing", "spec": {"dbPass": CANARY, "DB_PASS": CANARY, "db2-pass": CANARY}},
    {"kind": "Thing", "spec": {"privateKey": {"inline": CANARY}}},
    {"kind": "Thing", "spec": {"token": {"value": CANARY}}},
    {
        "kind": "Thing",
        "spec": {"token": {"name": "a", "value": CANARY}, "credentials": [{"a": {"b": CANARY}}]},
    },
    {"kind": "Thing", "spec": {"api_key": CANARY, "clientSecret": CANARY, "x-api-key": CANARY}},
    {"kind": "Thing", "spec": {"connectionString": CANARY, "dsn": CANARY, "sshPrivateKeyPem": CANARY}},
    {"kind": "Pod", "spec": {"containers": [{"args": ["--token", CANARY]}]}},
    {"kind": "Pod", "spec": {"containers": [{"args": ["a", "-db.password", CANARY, "b"]}]}},
    {"kind": "Pod", "spec": {"containers": [{"command": ["curl", "-u", f"admin:{CANARY}", "x"]}]}},
    {"kind": "Pod", "spec": {"containers": [{"command": ["sh", "-c", f"curl -u admin:{CANARY} https://x"]}]}},
    {"kind": "Pod", "spec": {"containers": [{"command": [f"curl --user='admin:{CANARY}' https://x"]}]}},
    {"kind": "Pod", "spec": {"containers": [{"command": [f"run --api-key {CANARY} --other"]}]}},
    {
        "kind": "Pod",
        "spec": {"containers": [{"args": [f"--password=the-{CANARY}", f"--token no.{CANARY} x"]}]},
    },
    {"kind": "Pod", "spec": {"containers": [{"command": [f"DB_PASS={CANARY} run"]}]}},
    {"kind": "Pod", "spec": {"containers": [{"env": [{"name": "DB_PASS", "value": CANARY}]}]}},
    {"kind": "Job", "spec": {"parameters": [{"key": "db.password", "value": CANARY}]}},
    {"kind": "ConfigMap", "data": {"a.json": orjson.dumps({"password": f"{CANARY} x {CANARY}"}).decode()}},
    {"kind": "ConfigMap", "data": {"a.yaml": f"db:\n  password: '{CANARY}'\n  secretKey: {CANARY}\n"}},
    {"kind": "ConfigMap", "data": {"dsn-of": f"admin:{CANARY}@tcp(db:3306)/x", "b": f"a:{CANARY}@db:5432/x"}},
    {"kind": "ConfigMap", "data": {"a": f"Server=db;User=sa;Password={CANARY};"}},
    {"kind": "ConfigMap", "data": {"url": f"postgres://admin:{CANARY}/x@db/x"}},
    {
        "kind": "ConfigMap",
        "data": {"a": f"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: A-1\n\n{CANARY}\n-----END"},
    },
]

REGISTRY = {"auths": {"r.example": {"username": "u", "password": CANARY, "auth": ENCODED}}}
QUOTED: list[tuple[object, str]] = [
    (
        {
            "kind": "Pod",
            "metadata": {
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": orjson.dumps(
                        secret(data={"a": ENCODED})
                    ).decode()
                }
            },
        },
        CANARY,
    ),
    (secret(data={".dockerconfigjson": base64.b64encode(orjson.dumps(REGISTRY)).decode()}), CANARY),
    (secret(metadata={"annotations": {"note": CANARY}}), CANARY),
    ({"kind": "Pod", "spec": {"args": ["--token", CANARY]}}, CANARY),
    ({"kind": "Pod", "spec": {"args": [f"--password={CANARY}"]}}, CANARY),
    ({"kind": "Pod", "spec": {"args": [f"curl -u a:{CANARY} b"]}}, CANARY),
    ({"kind": "Pod", "spec": {"command": ["curl", "-u", f"a:{CANARY}"]}}, CANARY),
    ({"kind": "Pod", "spec": {"command": ["mysql"], "args": [f"-p{CANARY}"]}}, CANARY),
    ({"kind": "Pod", "spec": {"args": [f"mysql -p{CANARY} -e 1"]}}, CANARY),
    ({"kind": "Thing", "spec": {"privateKey": {"inline": CANARY}}}, CANARY),
    ({"kind": "Thing", "spec": {"pass": CANARY}}, CANARY),
    (secret(stringData={"values.yaml": f"db:\n  user: admin\n  key: '{CANARY}'\n"}), CANARY),
    (secret(stringData={".env": f"A=b\nDB={CANARY}\n"}), CANARY),
    (secret(stringData={"auth": f"admin:{CANARY}"}), CANARY),
    (
        secret(
            stringData={"a.json": orjson.dumps({"a": {"b": CANARY}}, option=orjson.OPT_INDENT_2).decode()}
        ),
        CANARY,
    ),
    (secret(stringData={"a.json": orjson.dumps({"a": {"b": CANARY}}).decode()}), CANARY),
    ({"kind": "ConfigMap", "data": {"url": f"redis://:{CANARY}@redis:6379/0"}}, CANARY),
    ({"kind": "ConfigMap", "data": {"a.json": orjson.dumps({"token": CANARY}).decode()}}, CANARY),
]
"""Objects, and the value in them that a message quotes."""


@pytest.mark.parametrize("document", HIDDEN)
def test_a_secret_value_is_replaced(document: object) -> None:
    text = orjson.dumps(redacted(document)).decode()
    assert CANARY not in text
    assert ENCODED not in text


@pytest.mark.parametrize(("document", "value"), QUOTED)
def test_a_message_that_quotes_the_value_does_not_have_it(document: object, value: str) -> None:
    redactor = Redactor(secret_names=True)
    redactor.learn(document)
    assert redactor.message(f"the value {value!r} is bad") == f"the value '{mark(value)}' is bad"


@pytest.mark.parametrize(
    "text",
    [
        "the flag --token must be set",
        "the container mysql: the option -p is missing",
        "run mysql with -p and a file",
        "the password: is missing",
        "expected automountServiceAccountToken: false",
        "object.spec.automountServiceAccountToken == false || variables.token != ''",
        "run as --user 1000:1000",
        "image registry.example:5000/a/b:1.2@sha256:0123",
        "oci://registry.example:5000/a/b@sha256:0123",
        "the bypass is on: true, compass=3",
        "write to mailto:ann@example.com",
        "system:serviceaccount:shop:web may not",
    ],
)
def test_ordinary_messages_stay(text: str) -> None:
    assert Redactor(secret_names=True).message(text) == text


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
            "tls": {"privateKey": {"algorithm": "RSA", "rotationPolicy": "Always"}, "tokenRef": "a"},
            "password": {"valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
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


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_other_options_of_one_letter_stay(line: str) -> None:
    assert Redactor(secret_names=True).message(line) == line
    words = shlex.split(line)
    for command, arguments in ((words, []), (words[:1], words[1:])):
        pod = {"kind": "Pod", "spec": {"containers": [{"command": command, "args": arguments}]}}
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


def test_a_row_of_stops_and_dashes_is_searched_for_an_option_once() -> None:
    """From each dash, the search took a second for 64 KB. An option stands at the beginning of a word."""
    row = ".-" * 30
    assert without_credentials(f"{row}--token abcdef", mark) == f"{row}--token abcdef"
    assert without_credentials(f"{row} --token abcdef", mark) == f"{row} --token {mark('abcdef')}"
    url = f"postgres://user:{'p' * 480}@host"
    assert without_credentials(url, mark) == f"postgres://{mark('user:' + 'p' * 480)}@host"


NAMES = ("metadata", "annotations", "env", "name", "value", "data", "stringData", "args", "command")
PARTS = st.recursive(
    st.sampled_from([CANARY, "password", "Secret", "plain text", f"--password={CANARY}x", "a", 7, None]),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(
            st.sampled_from([*NAMES, "kind", "password", "token", "secretKeyRef"]), part, max_size=4
        )
    ),
    max_leaves=12,
)


@given(
    first=st.dictionaries(st.sampled_from(NAMES), PARTS),
    changes=st.lists(PARTS, max_size=3),
    kind=st.booleans(),
)
def test_stages_of_an_object_are_redacted_as_each_alone(
    first: dict[str, object], changes: list[object], kind: bool
) -> None:
    """What stages share is learned from and redacted once. Parts are shared, at other places, too."""
    stages = [{**first, "kind": "Secret" if kind else "Pod"}]
    for number, change in enumerate(changes):
        before = stages[-1]
        stages.append({**before, NAMES[number]: [change, before], "spec": {"password": before, "a": change}})
    together, alone = Redactor(secret_names=True), Redactor(secret_names=True)
    known: dict[int, object] = {}
    for stage in stages:
        together.learn(stage, known)
        alone.learn(orjson.loads(orjson.dumps(stage)))
    found = list(together.redacted_stages(stages))
    assert found == [alone.redacted(orjson.loads(orjson.dumps(stage))) for stage in stages]
    assert found == [together.redacted(stage) for stage in stages]
    assert together.message(f"is {CANARY}") == alone.message(f"is {CANARY}")
