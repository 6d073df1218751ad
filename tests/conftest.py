"""What every test file shares: the hypothesis profile."""

from __future__ import annotations

from tests import profiles

profiles.load()
