"""How many examples: few and always the same; with HYPOTHESIS_PROFILE=thorough many and new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("quick", settings.get_profile("patient"), max_examples=100, derandomize=True)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=3_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
