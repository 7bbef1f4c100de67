"""``migrate`` and ``migrate prove`` with engines, recordings and documents that lie, flood or do not answer.

They print what is wrong and how often, never a traceback, and write nothing outside of their folder.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from hypothesis import given

from tests.config.test_hostile_engine_documents import TEXTS, changed, documents
from tests.kit import PATIENCE_S, ROOT, call_command, free_port
from tests.migrating.kit import RULES, new_configuration, pod, write
from tests.replay.kit import HEADER, recording, review
from tests.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Json = dict[str, Any]

pytestmark = pytest.mark.process

REVIEWS: Final = 5
MAX_BYTES: Final = 3 << 30
"""Of the address space of a command, of which Python and its libraries take a third."""
EXPECTED: Final = {0, 1, 2, 3}
"""Exit statuses of ``prove``, see docs/commands.md."""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a process with bounded memory, and check what all have alike."""
    command = [sys.executable, "-m", "gateway", "migrate", *map(str, arguments)]
    limited = ["sh", "-c", f'ulimit -v {MAX_BYTES >> 10}; exec "$@"', "sh", *command]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    check(done)
    return done


def check(done: subprocess.CompletedProcess[str]) -> None:
    """Check that a command has told what is wrong, in lines that can be printed."""
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert done.returncode in EXPECTED, (done.returncode, done.stderr[-3000:])
    assert done.returncode == 0 or done.stdout.strip() or done.stderr.strip()
    for line in (done.stdout + done.stderr).splitlines():
        assert line.isprintable(), repr(line)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    started = WebhookProcess(tmp_path_factory.mktemp("server"))
    yield started
    started.stop()


DEEP: Final = '{"uid":"x","allowed":true,"patchType":"JSONPatch","patch":"W10=","a":' + "[" * 100_000
PATCH: Final = {"allowed": True, "patchType": "JSONPatch"}
ANSWERS: Final[dict[str, tuple[Json, str]]] = {
    "slow": ({"delay_s": 60}, "good"),
    "drips": ({"pace_s": 0.5}, "good"),
    "endless": ({"until_closed": True, "endless": "x"}, "good"),
    "huge": ({"zeros": 50_000_000}, "good"),
    "packed": ({"zeros": 100_000_000, "gzip": True}, "good"),
    "elsewhere": ({"status": 302, "headers": {"Location": "https://localhost:1/"}}, "good"),
    "error": ({"status": 500, "body": "\x1b[2J" + "no" * 100_000}, "good"),
    "no HTTP": ({"raw": "\x1b]0;x\x07 no HTTP\r\n\r\n"}, "good"),
    "hangs up": ({"hang_up": True}, "good"),
    "no JSON": ({"body": '{"response": '}, "good"),
    "a list": ({"body": "[]"}, "good"),
    "deep": ({"body": DEEP}, "good"),
    "another uid": ({"answer": {"uid": "other"}}, "good"),
    "no boolean": ({"answer": {"allowed": "yes"}}, "good"),
    "no base64": ({"answer": {**PATCH, "patch": "%"}}, "good"),
    "no patch": ({"answer": {**PATCH, "patch": "e30="}}, "good"),
    "control characters": (
        {"answer": {"allowed": False, "status": {"message": "\x1b[2J\r\n\x00\u202e../" * 1000, "code": 403}}},
        "good",
    ),
    "many warnings": ({"answer": {"warnings": ["w\x07" * 1000] * 20}}, "good"),
    "another name": ({}, "other_name"),
    "expired": ({}, "expired"),
    "refused": ({}, ""),
}


def registered(file: Path, server: WebhookProcess, script: Json, listener: str) -> None:
    """Write the registration of an engine that answers by *script* with the certificate *listener*."""
    client = server.client_config(script, listener or "good")
    if not listener:
        client["url"] = f"https://localhost:{free_port()}/"
    webhook = {
        "name": "validate.old-engine.test",
        "clientConfig": client,
        "rules": RULES,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "old-engine"},
        "webhooks": [webhook],
    }
    write(file, configuration)


@pytest.mark.parametrize(("script", "listener"), ANSWERS.values(), ids=ANSWERS)
def test_an_engine_that_answers_wrongly_is_told(
    server: WebhookProcess, tmp_path: Path, script: Json, listener: str
) -> None:
    registered(tmp_path / "old" / "registered.yaml", server, script, listener)
    lines = [
        review(pod(each, owner="a", cost="1"), phase="mutate", path="/mutate") for each in range(REVIEWS)
    ]
    source = recording(tmp_path / "recorded.jsonl.gz", *lines)
    new = new_configuration(tmp_path / "config")
    done = run("prove", source, "--config", new, "--output", tmp_path / "out" / "cases")
    assert done.returncode in (1, 3)
    # An answer that can be read differs in the object: the engine does not change it.
    assert "old-engine/validate.old-engine.test" in done.stdout or "\n  object" in done.stdout
    assert len(done.stdout) < 100_000
    names = sorted(each.name for each in tmp_path.iterdir())
    assert set(names) <= {"config", "old", "out", "recorded.jsonl.gz"}


LINE: Final = json.dumps(review(pod(0, owner="a", cost="1"), phase="mutate", path="/mutate")).encode() + b"\n"
DEEPER: Final = b'{"type":"review","request":' + b"[" * 200_000 + b"\n"
EVENT: Final = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"create",'
SOURCES: Final[dict[str, tuple[str, bytes]]] = {
    "empty": ("r.jsonl.gz", b""),
    "cut": ("r.jsonl.gz", gzip.compress(HEADER + LINE * 50)[:-20]),
    "no header": ("r.jsonl.gz", gzip.compress(LINE)),
    "huge line": ("r.jsonl.gz", gzip.compress(HEADER + b'{"type":"review","x":"' + b"a" * 300_000_000)),
    "zeros": ("r.jsonl.gz", gzip.compress(HEADER + bytes(300_000_000))),
    "not UTF-8": ("r.jsonl.gz", gzip.compress(HEADER + b"\xff\xfe\x00" * 1000 + b"\n" + LINE)),
    "deep": ("r.jsonl.gz", gzip.compress(HEADER + DEEPER + LINE)),
    "wrong types": (
        "r.jsonl.gz",
        gzip.compress(
            HEADER + b'{"type":"review","request":[1],"path":7,"webhooks":{}}\n[]\nnull\n1\n' + LINE
        ),
    ),
    "audit log, cut": ("a.log", EVENT[:-10]),
    "audit log, wrong types": (
        "a.log",
        EVENT + b'"objectRef":7,"requestObject":[],"user":1,"annotations":[]}\n' * 3,
    ),
    "audit log, not UTF-8": ("a.log", EVENT + b'"user":"\xff\xfe"}\n' + b"\x00" * 1000),
    "audit log, deep": ("a.log", EVENT + b'"requestObject":' + b"[" * 200_000),
    "a folder": ("", b""),
}


@pytest.mark.parametrize(("name", "content"), SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("option", ["", "--audit-log"])
def test_a_source_that_is_damaged_is_told(
    server: WebhookProcess, tmp_path: Path, name: str, content: bytes, option: str
) -> None:
    registered(tmp_path / "old" / "registered.yaml", server, {}, "good")
    source = tmp_path / (name or "folder")
    if name:
        source.write_bytes(content)
    else:
        source.mkdir()
    new = new_configuration(tmp_path / "config")
    run("prove", *filter(None, (option,)), source, "--config", new)


PLACES: Final = (
    "../../x",
    "/etc/x",
    "a/../../x",
    "..",
    ".",
    "x\0y",
    "\x1b[2J",
    "a\nb",
    "é" * 500,
    "~",
    "-rf",
    "CON",
)


def everything(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("field", ["name", "namespace", "kind"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str, field: str) -> None:
    inside = tmp_path / "a" / "b" / "c"
    found = documents("bad")
    for each in found:
        if field == "kind":
            if each["kind"] == "BadKind":
                each["kind"] = name
            elif each["kind"] == "ConstraintTemplate":
                each["spec"]["crd"]["spec"]["names"]["kind"] = name
        else:
            each["metadata"][field] = name
    text = "\n---\n".join(map(json.dumps, found))
    source = tmp_path / "a" / "source.yaml"
    source.parent.mkdir()
    source.write_text(text)
    done = call_command("migrate", source, "--output", inside)
    check(done)
    outside = everything(tmp_path) - everything(inside) - {source}
    assert not outside
    for file in everything(inside):
        assert str(file).isprintable()
        assert file.resolve().is_relative_to(inside.resolve())


@given(changed())
def test_changed_documents_are_moved_or_told(
    tmp_path_factory: pytest.TempPathFactory, found: list[Json]
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    source = folder / "source.json"
    source.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    check(call_command("migrate", source, "--output", folder / "out"))
    outside = everything(folder) - everything(folder / "out")
    assert outside == {source}


@pytest.mark.parametrize("change", TEXTS.values(), ids=TEXTS)
def test_hostile_texts_are_moved_or_told(tmp_path: Path, change: Callable[[str], str | bytes]) -> None:
    text = change(yaml.safe_dump_all(documents("bad")))
    source = tmp_path / "source.yaml"
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    check(call_command("migrate", source, "--output", tmp_path / "out"))
