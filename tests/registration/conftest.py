from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit import pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    (folder / "all.yaml").write_text(
        pool_document("pool", "localhost:1")
        + webhook_document("mutate", "defaults", "pool", {"webhook": {"rules": rules}})
        + webhook_document("validate", "checks", "pool", {"webhook": {"rules": rules}})
    )
    return folder
