"""The mapping ``record`` of a GatewayConfiguration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.kinds.record_settings import RecordSettings, RedactionRule
from gateway.config.merge.digest import digest
from tests.config.documents import load_documents
from tests.config.test_resources import gateway

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_is_recorded_by_default() -> None:
    assert load_documents(gateway()).gateway.record is None


def test_a_folder_is_enough_and_changes_no_digest(tmp_path: Path) -> None:
    config = load_documents(gateway(record={"folder": str(tmp_path / "new")}))
    assert config.gateway.record == RecordSettings(tmp_path / "new")
    assert digest(config) == digest(load_documents(gateway()))


def test_every_field_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"x" * 16)
    record = {
        "folder": str(tmp_path),
        "samplePercent": 2.5,
        "perCombination": 3,
        "maxPerSecond": 4,
        "maxFileBytes": 65536,
        "maxFiles": 5,
        "maxAge": "2h",
        "keyFile": str(tmp_path / "key"),
        "redact": [{"paths": ["$.a[*]['b.c'].*", "d"]}, {"kinds": ["ConfigMap"], "paths": ["$.data[*]"]}],
    }
    expected = RecordSettings(
        *(tmp_path, 2.5, 3, 4, 65536, 5, 7200.0, tmp_path / "key"),
        (
            RedactionRule((("a", None, "b.c", None), ("d",))),
            RedactionRule((("data", None),), ("ConfigMap",)),
        ),
    )
    assert load_documents(gateway(record=record)).gateway.record == expected


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("folder", "", "is required"),
        ("folder", "none/none", "expected a folder"),
        ("folder", "a\0b", "NUL"),
        ("maxAge", "1s", "from 1m"),
        ("keyFile", "none", "cannot be read"),
        ("redact", [{"paths": ["$..a"]}], "expected a path such as"),
        ("redact", [{"kinds": [""], "paths": ["a"]}], "expected a kind"),
    ],
)
def test_a_wrong_field_is_refused(field: str, value: Any, message: str, tmp_path: Path) -> None:
    record = {"folder": str(tmp_path), field: value}
    with pytest.raises(ConfigError) as caught:
        load_documents(gateway(record=record))
    (problem,) = caught.value.problems
    assert problem.field.startswith(f"record.{field}")
    assert message in problem.message


def test_a_short_key_is_refused_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"sesame")
    with pytest.raises(ConfigError, match="holds 6 bytes, expected at least 16") as caught:
        load_documents(gateway(record={"folder": str(tmp_path), "keyFile": str(tmp_path / "key")}))
    assert "sesame" not in str(caught.value)


def test_a_recording_of_nothing_is_a_warning(tmp_path: Path) -> None:
    record = {"folder": str(tmp_path), "samplePercent": 0, "perCombination": 0}
    (warning,) = load_documents(gateway(record=record)).warnings
    assert "records nothing" in warning.message
