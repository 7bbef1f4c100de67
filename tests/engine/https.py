"""Requests to the front end of a gateway on the same event loop."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import orjson


async def post(port: int, path: str, request: dict[str, Any], *, is_whole: bool = False) -> bytes:
    """Return the body of the answer to the AdmissionReview of *request*, or to *request* as a whole."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    content = orjson.dumps(request if is_whole else review)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]
