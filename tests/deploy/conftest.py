"""Fixtures for the tests of ``deploy/``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gateway.config.merge.load import load
from tests.deploy.cluster import REGISTRATION, configured, make_certificates, objects
from tests.kit import pool_document

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.merge.model import Config


@pytest.fixture
def config(tmp_path: Path, certificate: tuple[Path, Path]) -> Config:
    """The configuration in the ConfigMap of the manifest."""
    return configured(tmp_path, certificate)


@pytest.fixture
def registered(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The registrations, defaulted and validated by the gateway, with a worker in place of the Service."""
    documents = objects(REGISTRATION)
    for document in documents:
        for webhook in document["webhooks"]:
            webhook["clientConfig"] = {"worker": {"pool": "api-server", "policy": webhook["name"]}}
    file = tmp_path_factory.mktemp("registered") / "registration.yaml"
    file.write_text("\n---\n".join([pool_document("api-server", "localhost:1"), *map(json.dumps, documents)]))
    return load([file])


@pytest.fixture(scope="session")
def made_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``certificate.sh`` fills."""
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder)
    return folder
