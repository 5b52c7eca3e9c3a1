"""Builds the echo servers in C that benchmarks measure clients against: one over stdio, and one over HTTP.

``python benchmarks/echo_server.py`` prints the path of the program that speaks over stdio.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
CACHE = Path(__file__).parents[1] / ".cache" / "benchmarks"
FLAGS = ("-std=c11", "-D_DEFAULT_SOURCE", "-D_DARWIN_C_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror")


class NoCompiler(RuntimeError):
    """There is no C compiler here, or none that compiles."""


def build(name: str = "echo_server") -> Path:
    """Compile the server, unless this source has been compiled before, and return the program; raises `NoCompiler`.

    `name` is ``echo_server`` or ``http_echo_server``.
    """
    compiler = _compiler()
    source = SOURCES / f"{name}.c"
    recipe = source.read_bytes() + (SOURCES / "echo.h").read_bytes() + shlex.join([*compiler, *FLAGS]).encode()
    program = CACHE / f"{name}-{hashlib.sha256(recipe).hexdigest()[:16]}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Compiled elsewhere and moved: a benchmark that runs at the same time never sees half a program.
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            unfinished = Path(folder) / name
            _run([*compiler, *FLAGS, "-o", str(unfinished), str(source)])
            unfinished.replace(program)
    return program


def _compiler() -> list[str]:
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise NoCompiler("no C compiler: benchmarks need cc, gcc or clang on PATH, or the command in CC")


def _run(command: list[str]) -> None:
    try:
        run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise NoCompiler(f"{command[0]}: {error.strerror}") from error
    if run.returncode != 0:
        raise NoCompiler(f"{shlex.join(command)} failed:\n{run.stderr}")


if __name__ == "__main__":
    print(build())
