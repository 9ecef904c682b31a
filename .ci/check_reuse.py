"""Check that a second run of the demo reused every conversion, recording and comparison that the first one kept.

    python .ci/check_reuse.py again.json

What failed is done again, as is a benchmark that left speeds uncertain: both differ from machine to machine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(path: str) -> int:
    """Print how many jobs were reused, and each that was done again without a reason; return the exit code."""
    runs = json.loads(Path(path).read_text(encoding="utf-8"))["runs"]
    jobs = [job for run in runs for job in run["jobs"] if not job["is_found"]]
    again = [job for job in jobs if not job["taken_from"] and job["not_kept"] != "it failed"]
    print(f"the demo's second run reused {sum(bool(job['taken_from']) for job in jobs)} of {len(jobs)} jobs")
    for job in again:
        print(f"done again: {job['job']}: {job['why'] or job['not_kept'] or 'no reason'}", file=sys.stderr)
    return int(bool(again) or not jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
