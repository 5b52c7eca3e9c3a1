"""Standard input and output for a protocol alone."""

import subprocess
import sys

PROGRAM = """
import os
from gaia.serving.descriptors import take_descriptors
incoming, outgoing = take_descriptors()
print("not for the protocol")
assert os.read(0, 10) == b""
os.write(outgoing, os.read(incoming, 100))
"""


def test_what_is_printed_does_not_meet_the_protocol(starts_processes: None) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], input=b"message", capture_output=True, check=True)
    assert run.stdout == b"message"
    assert b"not for the protocol" in run.stderr
