"""A package index on loopback: the files of constraints.txt, and a newer version of every package."""

from __future__ import annotations

import html
import zipfile
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from threading import Thread
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote

from deploy.sbom import normalised
from tests.kit import ThreadingServer

if TYPE_CHECKING:
    from pathlib import Path

NEWER: Final = "9999.0"
"""The version that is published after the lock was written."""


def project_of(file: str) -> str:
    """Return the normalised name of the project of *file*, a wheel or source distribution.

    Source: PyPA specifications, "Binary distribution format" and "Source distribution format".
    """
    return normalised(file.split("-", maxsplit=1)[0] if file.endswith(".whl") else file.rpartition("-")[0])


def newer_wheel(project: str) -> tuple[str, bytes]:
    """Return file name and content of a wheel of *project* that installs a module ``not_locked``."""
    stem = f"{project.replace('-', '_')}-{NEWER}"
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr("not_locked.py", "")
        wheel.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {NEWER}\n"
        )
        wheel.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return f"{stem}-py3-none-any.whl", content.getvalue()


class Index:
    """Serves *folder* until the block ends; ``asked`` has the paths that were requested.

    Source: PyPA specifications, "Simple repository API", HTML.
    """

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, dict[str, bytes | Path]] = {}
        for path in folder.iterdir():
            self._files.setdefault(project_of(path.name), {})[path.name] = path
        for project, files in self._files.items():
            name, content = newer_wheel(project)
            files[name] = content
        self.asked: list[str] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append(self.path)
                content = index.content(unquote(self.path))
                self.send_response(404 if content is None else 200)
                self.send_header(
                    "Content-Type", "text/html" if self.path.endswith("/") else "application/zip"
                )
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingServer(Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def content(self, path: str) -> bytes | None:
        """Return the response to *path*; None if there is no such page or file."""
        _, _, project, file = (*path.split("/", 3), "", "")[:4]
        files = self._files.get(project)
        if files is None:
            return None
        if not file:
            return "".join(f'<a href="{html.escape(one)}">{one}</a>\n' for one in files).encode()
        found = files.get(file)
        return found if found is None or isinstance(found, bytes) else found.read_bytes()
