"""One line of a JSONL file that may have been cut short, or may be somebody else's."""

from __future__ import annotations

import json
from typing import Any


def json_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object that a line holds, None if it holds none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
