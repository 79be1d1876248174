"""Where things are: the repository, what cargo built, and the way into the sandbox."""

import json
import os
import sys

from .programs import Failed, run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
PROGRAM = os.path.join(TARGET, "release", "nasgauge")
SERVERS = os.path.join(TARGET, "release", "examples", "servers")
BUILD_S = 900
INSIDE = "NASGAUGE_PEERS_INSIDE"


def build():
    run(["cargo", "build", "--release", "--manifest-path", os.path.join(ROOT, "Cargo.toml"),
         "--bin", "nasgauge", "--example", "servers"], BUILD_S)


def inside():
    return INSIDE in os.environ


def enter():
    """This script again, with the same arguments, in namespaces of its own; does not come back."""
    script = os.path.join(ROOT, "src", "servers", "sandbox.sh")
    os.environ[INSIDE] = "1"
    sys.stdout.flush()
    os.execvp("sh", ["sh", script, "enter", sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]])


def said(command):
    """The first line that a program says; None where there is no such program."""
    try:
        return run(command, 20).out.strip().splitlines()[0]
    except (Failed, OSError, IndexError):
        return None


def about(**more):
    """What a reader must know of this machine and these programs."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "nasgauge": said([PROGRAM, "--version"]), "commit": said(["git", "-C", ROOT, "rev-parse", "HEAD"]),
        "kernel": os.uname().release, "cpu": models[0] if models else None, "cores": len(os.sched_getaffinity(0)), **more}


def write_json(path, facts):
    with open(path, "w") as file:
        json.dump(facts, file, indent=2)
        file.write("\n")
