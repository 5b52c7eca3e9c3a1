"""Fuzzing what a server writes, from its first byte to the end of the calls, with atheris (``tox -e fuzz``).

    python -m tests.fuzz.fuzz_wire [libFuzzer's options] [folders of inputs]

The first byte of an input says which era the server is of and in what pieces the rest comes. `tests/fuzz/corpus` holds
inputs worth beginning with; what is found is written into the first folder that is named.
"""

from __future__ import annotations

import logging
import sys

import atheris

with atheris.instrument_imports(include=["gaia"]):
    from tests.fuzz.inputs import run


def main() -> None:
    # Every input is full of noise, and writing that down takes longer than all the rest.
    logging.getLogger("gaia").setLevel(logging.CRITICAL)
    atheris.Setup(sys.argv, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
