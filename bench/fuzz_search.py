"""A longer search than the tests': atheris follows coverage through our own modules (``pip install atheris``).

``python -m bench.fuzz_search TARGET SECONDS [CORPUS]``, with a target of :data:`bench.fuzz.TARGETS` and perhaps a folder of
inputs to begin with; exit code 0: nothing was found. The input of a crash is left in the current folder.
"""

from __future__ import annotations

import os
import sys
import time

OURS = ["bench", "hpo", "proxies", "search_spaces"]


def search(target: str, seconds: float, *corpus: str) -> None:
    """Search for about as long; ends the process."""
    import atheris

    with atheris.instrument_imports(include=OURS):
        from bench.fuzz import TARGETS  # imported only now, so that it is followed
    act, begun, count = TARGETS[target], time.monotonic(), 0

    def once(data: bytes) -> None:
        nonlocal count
        act(data)
        count += 1
        if time.monotonic() - begun > seconds:
            print(f"{target}: no crash in {count} inputs, {seconds:g} s", flush=True)
            os._exit(0)  # atheris has no other way to end well

    atheris.Setup([sys.argv[0], "-max_len=4096", "-rss_limit_mb=4096", *corpus], once)
    atheris.Fuzz()


if __name__ == "__main__":
    search(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
