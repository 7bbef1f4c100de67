"""Registries on loopback: a Python index, npm, crates, Maven and files, as far as their own tools need them.

A client with ``TOKEN`` can upload a file to each, once under a name. Every client can download it.

Source: PyPA specifications, "Simple repository API"; Warehouse, "Upload API"; npm, "Public registry API"; The
Cargo Book, "Registry Index" and "Registry Web API"; Maven repository layout.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

from tests.install.index import project_of
from tests.kit import ThreadingServer

if TYPE_CHECKING:
    from pathlib import Path

TOKEN: Final = "token-of-the-rehearsal"


class Registries:
    """Serves until the block ends. ``written`` has the paths that were written, ``refused`` the others.

    *wheels* has the packages of Python of others. *npm_upstream* is the registry of those of npm.
    """

    def __init__(self, wheels: Path | None = None, npm_upstream: str = "") -> None:
        self.files: dict[str, bytes] = {}
        self.written: list[str] = []
        self.refused: list[str] = []
        self._npm_upstream = npm_upstream.rstrip("/")
        for path in wheels.iterdir() if wheels else ():
            self.files[f"/pypi/simple/{project_of(path.name)}/{path.name}"] = path.read_bytes()
        registries = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(self.path)
                content = registries.content(path)
                if content is None and registries._npm_upstream and path.startswith("/npm/"):
                    return self.answer(
                        307, b"", Location=registries._npm_upstream + self.path.removeprefix("/npm")
                    )
                return self.answer(404 if content is None else 200, content or b"")

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not is_authorised(self.headers.get("Authorization", "")):
                    registries.refused.append(self.path)
                    return self.answer(401, b"", **{"WWW-Authenticate": 'Basic realm="rehearsal"'})
                status, answer = registries.write(
                    unquote(self.path), self.headers.get("Content-Type", ""), body
                )
                return self.answer(status, answer)

            def do_POST(self) -> None:
                self.do_PUT()

            def answer(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                kind = "text/html" if self.path.startswith("/pypi/") else "application/json"
                for name, text in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingServer(Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.pypi = f"{self.url}/pypi/simple"
        self.npm = f"{self.url}/npm"
        self.crates = f"sparse+{self.url}/crates/index/"
        self.maven = f"{self.url}/maven"
        self.downloads = f"{self.url}/files"
        config = {"dl": f"{self.url}/crates/dl", "api": f"{self.url}/crates"}
        self.files["/crates/index/config.json"] = json.dumps(config).encode()

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def content(self, path: str) -> bytes | None:
        """Return the response to *path*; None if there is nothing."""
        if path.startswith("/pypi/simple/") and path.endswith("/"):
            names = [name.removeprefix(path) for name in self.files if name.startswith(path)]
            return "".join(f'<a href="{html.escape(name)}">{name}</a>\n' for name in names).encode() or None
        return self.files.get(path)

    def write(self, path: str, kind: str, body: bytes) -> tuple[int, bytes]:
        """Take what was sent to *path*; return status and answer."""
        registries = {"pypi": self._python, "npm": self._npm, "crates": self._crate}
        new = registries.get(path.split("/")[1], self._file)(path, kind, body)
        # Only Maven's lists of versions, with their checksums, are written again.
        if any(name in self.files and "maven-metadata.xml" not in name for name in new):
            return 409, b"{}"
        self.files.update(new)
        self.written += new
        return 200, b"{}"

    def _python(self, _: str, kind: str, body: bytes) -> dict[str, bytes]:
        form = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
        for part in form.walk():
            if name := part.get_filename():
                content = part.get_payload(decode=True)
                assert isinstance(content, bytes)
                return {f"/pypi/simple/{project_of(name)}/{name}": content}
        raise AssertionError("the form has no file")

    def _npm(self, path: str, _: str, body: bytes) -> dict[str, bytes]:
        document = json.loads(body)
        attachments = document.pop("_attachments")
        # npm asks for the file where `dist` says that it is.
        files = {f"{path}/-/{name}": base64.b64decode(one["data"]) for name, one in attachments.items()}
        return {path: json.dumps(document).encode(), **files}

    def _crate(self, _: str, __: str, body: bytes) -> dict[str, bytes]:
        size = int.from_bytes(body[:4], "little")
        sent, crate = json.loads(body[4 : 4 + size]), body[8 + size :]
        name, version = sent["name"], sent["vers"]
        entry = {
            "name": name,
            "vers": version,
            "deps": [_indexed(dependency) for dependency in sent["deps"]],
            "cksum": hashlib.sha256(crate).hexdigest(),
            "features": sent["features"],
            "yanked": False,
            "links": sent["links"],
        }
        return {
            f"/crates/index/{name[:2]}/{name[2:4]}/{name}": json.dumps(entry).encode() + b"\n",
            f"/crates/dl/{name}/{version}/download": crate,
        }

    def _file(self, path: str, _: str, body: bytes) -> dict[str, bytes]:
        return {path: body}


def _indexed(dependency: dict[str, Any]) -> dict[str, Any]:
    """Return a dependency as the index has it, from one as it is published."""
    renamed = dependency.get("explicit_name_in_toml")
    return {
        **{name: dependency[name] for name in ("features", "optional", "default_features", "target", "kind")},
        "name": renamed or dependency["name"],
        "req": dependency["version_req"],
        "registry": dependency.get("registry"),
        "package": dependency["name"] if renamed else None,
    }


def is_authorised(header: str) -> bool:
    """Return whether a request with this Authorization has the token: bare, as a bearer, or as a password."""
    scheme, _, text = header.rpartition(" ")
    return TOKEN in (base64.b64decode(text).decode() if scheme == "Basic" else text).split(":")
