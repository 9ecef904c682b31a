"""All cases of the zoo, by name."""

from __future__ import annotations

from hub_cases import HUB_CASES
from keras_cases import KERAS_CASES
from plain_cases import PLAIN_CASES
from vision_cases import VISION_CASES

__all__ = ["CASES", "PARTS"]

PARTS = (HUB_CASES, PLAIN_CASES, VISION_CASES, KERAS_CASES)
CASES = {case.name: case for part in PARTS for case in part}
