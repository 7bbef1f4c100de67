"""Writes the text of a preview to a pull request: one comment, which later runs change.

It is found by its first line, a marker that ``admission-gateway preview --markdown`` writes, and by its
author: another author could change it afterwards. It needs nothing but Python 3.9 or newer.

Source: GitHub REST API, "List issue comments", "Create an issue comment", "Update an issue comment", "Get the
authenticated user".
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

PER_PAGE = 100
MAX_PAGES = 30
"""Comments beyond that are not looked at. A new comment is written if the marker is not among them."""
TIMEOUT_S = 30
OF_JOBS = "github-actions[bot]"
"""The author of what a job writes with its own token, which may not ask who it is."""


def main() -> None:
    """Write the comment that the environment names."""
    number = os.environ["NUMBER"]
    if not number.isdecimal():
        sys.exit("::error::comment: the event has no pull request; run the job on pull_request")
    text = Path(os.environ["MARKDOWN"]).read_text(encoding="utf-8")
    marker = text.split("\n", 1)[0]
    comments = f"repos/{os.environ['GITHUB_REPOSITORY']}/issues/{number}/comments"
    try:
        known = _find(comments, marker)
        if known is None:
            _ask("POST", comments, {"body": text})
        else:
            _ask("PATCH", f"repos/{os.environ['GITHUB_REPOSITORY']}/issues/comments/{known}", {"body": text})
    except HTTPError as error:
        hint = ": the job needs the permission pull-requests: write" if error.code in (401, 403, 404) else ""
        sys.exit(f"::error::comment: GitHub answered {error.code} {error.reason}{hint}")
    except URLError as error:
        sys.exit(f"::error::comment: GitHub cannot be reached: {error.reason}")


def _find(comments: str, marker: str) -> int | None:
    """Return the id of the first comment of this author that begins with *marker*."""
    author = _author()
    for page in range(1, MAX_PAGES + 1):
        found = _ask("GET", f"{comments}?per_page={PER_PAGE}&page={page}")
        for each in found:
            if each["user"]["login"] == author and str(each.get("body") or "").startswith(marker):
                return int(each["id"])
        if len(found) < PER_PAGE:
            break
    return None


def _author() -> str:
    try:
        return str(_ask("GET", "user")["login"])
    except HTTPError as error:
        if error.code not in (401, 403):
            raise
        return OF_JOBS


def _ask(method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 # what GitHub answers
    request = Request(  # noqa: S310 # the URL of the runner
        f"{os.environ['GITHUB_API_URL']}/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return json.load(answer)


if __name__ == "__main__":
    main()
