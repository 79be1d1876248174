"""Runs a program to its end: bounded in time, in a process group of its own, with its whole CPU time."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass


class Failed(Exception):
    """A program did not do what it was asked to; one sentence."""


@dataclass
class Ended:
    """A program that ended well."""
    out: str
    errors: str
    wall_s: float
    cpu_s: float  # user and system time of it and of the children it waited for, setup included


def run(command, timeout_s, environment=None, status=(0,), directory=None):
    """Runs `command` in `directory`; kills its group when it takes longer than `timeout_s`."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True,
            cwd=directory, env={**os.environ, **(environment or {})})
        hung = threading.Event()

        def end():
            hung.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout_s, end)
        timer.start()
        # wait4 and not Popen.wait, since it alone tells what this one child used.
        _, code, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(code)
        wall = time.monotonic() - began
        out.seek(0)
        errors.seek(0)
        said, complaints = out.read(), errors.read()
    name = os.path.basename(command[0])
    if hung.is_set():
        raise Failed(f"{name} hung and was killed after {timeout_s:.0f} s")
    if process.returncode not in status:
        raise Failed(f"{name} failed ({process.returncode}): {(complaints or said).strip()[-400:]}")
    return Ended(said, complaints, wall, usage.ru_utime + usage.ru_stime)
