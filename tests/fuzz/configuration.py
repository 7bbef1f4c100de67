"""The configuration loader: files of YAML and JSON to a configuration, or to all problems in them.

An input selects valid documents, changes in them, and their syntax; or it is the content of a file. A
configuration that loads must be usable: each of its paths is matched with a review.
"""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml

from gateway.base.errors import ConfigError
from gateway.config.kinds.client_config import url_problems
from gateway.config.merge.load import load
from gateway.config.yaml.fields import MAX_PROBLEMS
from gateway.engine.paths import Paths, path_of
from gateway.pure.core.review import decode
from gateway.pure.core.webhook import HttpsClient, WorkerRef
from tests.core.build import body, document
from tests.fuzz.configured import DOCUMENTS, POOL
from tests.fuzz.documents import dumped, edited, spliced, words_of
from tests.fuzz.laws import Faults
from tests.fuzz.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.merge.model import Config

MODULES: Final = (
    "gateway/config/merge/load.py",
    "gateway/config/merge/read.py",
    "gateway/config/yaml/parsing.py",
    "gateway/config/yaml/scalars.py",
    "gateway/config/yaml/documents.py",
    "gateway/config/yaml/fields.py",
    "gateway/config/kinds/webhook_configuration.py",
    "gateway/config/kinds/webhook_entry.py",
    "gateway/config/kinds/matching.py",
    "gateway/config/kinds/client_config.py",
    "gateway/config/kinds/gateway_configuration.py",
    "gateway/config/kinds/worker_pool.py",
    "gateway/config/kinds/declare.py",
    "gateway/config/kinds/addresses.py",
    "gateway/config/kinds/names.py",
    "gateway/config/kinds/metadata.py",
    "gateway/engine/paths.py",
)
MAX_BYTES: Final = 1024

_TEXTS: Final = list(map(orjson.dumps, DOCUMENTS))
_KEYS: Final = [
    *words_of(*DOCUMENTS),
    *(
        "*",
        "*/*",
        "Exists",
        "In",
        "url",
        "service",
        "caBundle",
        "matchConditions",
        "kubernetes",
        "kubeconfig",
    ),
    *("https://a/b", "dns://", "[::]:1", "1h", "p99.9", "-5", "a\nb", "ValidatingWebhookConfigurationList"),
]
WORDS: Final = [
    *(
        b"---\n",
        b"...\n",
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"- ",
        b"? ",
        b": ",
        b"!!",
        b"!!binary ",
        b"!!map ",
        b"%YAML 1.1\n",
    ),
    *(
        b"|\n",
        b">-\n",
        b"'",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b"\t",
        b"#",
        b"0x",
        b"0o7",
        b"1_000",
        b".inf",
        b".nan",
        b"~",
    ),
    *(
        b"apiVersion: ",
        b"kind: ",
        b"metadata: ",
        b"name: ",
        b"spec: ",
        b"webhooks:\n",
        b"rules: ",
        b"items: ",
        b"yes",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\\u0000",
        b"\\ud83d\\ude00",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\r",
        b"\0",
    ),
]
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="fuzz-")
atexit.register(_FOLDER.cleanup)
_ROOT: Final = Path(_FOLDER.name)
_REQUEST: Final = decode(body(document()))
_faults = Faults()


def run(data: bytes) -> None:
    with _faults:
        _run(Source(data))


def _run(source: Source) -> None:
    kind = source.byte()
    file = _ROOT / ("a.json" if kind & 1 else "a.yaml")
    file.write_bytes(source.rest() if kind & 2 else _written(source, as_json=kind & 13 != 4))
    try:
        config = load([file])
    except ConfigError as error:
        check_problems(error, file)
    else:
        assert all(problem.where.startswith(str(file)) for problem in config.warnings)
        _check_paths(config)


def _written(source: Source, *, as_json: bool) -> bytes:
    documents = [orjson.loads(source.one_of(_TEXTS)) for _ in range(1 + source.byte() % 2)]
    documents = [edited(source, each, _KEYS) for each in documents]
    if source.chance(2):
        documents.append(orjson.loads(POOL))
    if as_json:
        text = b"\n---\n".join(map(dumped, documents))
    else:
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text = yaml.dump_all(_reread(documents), Dumper=dumper, default_flow_style=None).encode(
            "utf-8", "replace"
        )
    return spliced(source, text)


def _reread(documents: list[Any]) -> list[Any]:
    # The dumper is recursive, so that documents with deep nesting are left out.
    return [each for each in documents if len(dumped(each)) < 5000 and dumped(each).count(b"[[[[[[") == 0]


def check_problems(error: ConfigError, file: Path) -> None:
    """Check that each problem of *file* is one printable line."""
    assert error.problems
    for problem in error.problems:
        assert problem.where.startswith(str(file))
        assert problem.message
        assert str(problem).isprintable()
        assert len(str(problem)) < 2000
        assert "Traceback" not in problem.message
    assert len(error.problems) <= MAX_PROBLEMS + 1


def _check_paths(config: Config) -> None:
    paths = Paths(config)
    assert len(paths) == 6 + 3 * len(config.configurations)
    for phase, hooks in (("mutate", config.mutating), ("validate", config.validating)):
        assert phase in ("mutate", "validate")
        selection = paths[f"/{phase}"]
        assert selection.webhooks == hooks
        invoked = selection.invocations(_REQUEST, config.namespaces.get("default"))
        assert [one.webhook for one in invoked] == [
            hook for hook in hooks if hook in {i.webhook for i in invoked}
        ]
        for hook in hooks:
            assert paths.get(path_of(hook.phase, None, "only", [hook])) is not None
            if isinstance(hook.client, WorkerRef):
                assert hook.client.pool in config.pools
            elif isinstance(hook.client, HttpsClient):
                assert not url_problems(hook.client.url)
                assert hook.client.url.isascii()


def seeds() -> Iterator[bytes]:
    yield b""
    for number, text in enumerate(_TEXTS):
        for kind in (0, 1, 4):
            yield bytes([kind, 0, number, 0, 1])
            yield bytes(
                [kind, 1, number, 0, 2, 0, 1, 4, 2, 3, 1, 9, 2, 4, 6, 8, 3, 1, 3, 3, 0, 0, 5, 2, 2, 7]
            )
        if len(text) < MAX_BYTES:
            yield b"\2" + text
            yield b"\3" + text
    for action in range(8):
        for kind in range(0, 16, 5):
            yield bytes([kind & 13, 0, 1 + kind % 4, 1, 2, 0, 3, 0, 1, 4, action, kind, 5, 6, 7, 8, 9, 1])
    yield b"\2a: &a [1, 2]\nb: *a\nc: {<<: {d: e}}\n--- !!str x\n---\n- 0x1F\n- 1_0\n- .5e3\n- ~\n"
    yield b"\2a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: [*c, *c, *c, *c]\n"
    yield b'\3{"a": "\\ud83d\\ude00", "a": 1e5, "b": NaN}'
    yield b"\2%YAML 1.1\n---\n? |\n  a\n: >-\n  b\n...\n"
