"""The schemas of Kubernetes' own kinds that come with the gateway, for clusters that it cannot read."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Final

import orjson

from gateway.pure.openapi.schemas import Schemas

FILE: Final = Path(__file__).with_name("built-in.json.gz")


@cache
def built_in_schemas() -> Schemas:
    """Return them; read when they are first needed, which takes milliseconds."""
    return Schemas([orjson.loads(gzip.decompress(FILE.read_bytes()))])
