"""nasgauge as a user runs it: its command line, its CSV."""

import csv
import io
import json
import os
import tempfile

from .figures import Figures
from .programs import Failed, run

RAMP = "500ms"
STARTUP_S = 60  # for connecting, laying 1 GiB on a LUN and zeroing it again


class Nasgauge:
    """A target of one program."""

    def __init__(self, program, uri, *options, password=None):
        self.program, self.uri, self.options = program, uri, options
        self.environment = {"NASGAUGE_PASSWORD": password} if password else {}

    def call(self, *arguments, seconds=0, status=(0,)):
        # Elsewhere, since `prepare` leaves its results where it runs.
        with tempfile.TemporaryDirectory() as directory:
            return run([self.program, "--quiet", *arguments], STARTUP_S + 2 * seconds, self.environment, status, directory)

    def rows(self, *arguments, seconds=0):
        """The lines of summary.csv of a run, each ok."""
        with tempfile.TemporaryDirectory() as directory:
            ended = self.call("--format", "csv", "run", "--target", self.uri, *arguments,
                              "--out", os.path.join(directory, "results"), seconds=seconds, status=(0, 1))
        rows = list(csv.DictReader(io.StringIO(ended.out)))
        bad = [row["workload"] + ": " + row["status"] for row in rows if row["status"] != "ok"]
        if bad or not rows:
            raise Failed(f"nasgauge measured badly on {self.uri}: {', '.join(bad) or 'no row'}; {ended.errors.strip()[-400:]}")
        return rows, ended

    def prepare(self, size):
        self.call("prepare", self.uri, "--size", str(size))

    def serial(self):
        """The serial number of a LUN, without which what a peer wrote on it would be safe from us."""
        facts = json.loads(self.call("--format", "json", "inspect", self.uri).out)
        return next(value for label, value in facts["lines"] if label == "serial")

    def measure(self, load, seconds):
        rows, ended = self.rows(
            "--rw", load.rw, "--bs", str(load.bs), "--iodepth", str(load.depth), "--lanes", "1",
            "--size", str(load.size), "--runtime", str(seconds), "--ramp-time", RAMP, *self.options, seconds=seconds)
        (row,) = rows
        if (int(row["lanes"]), int(row["iodepth"])) != (1, load.depth):
            raise Failed(f"{self.uri} ran {row['lanes']} lanes x {row['iodepth']}, not 1 x {load.depth}: no equal load")
        moved, ops, took = int(row["bytes"]), int(row["ops"]), float(row["seconds"])
        number = lambda column: float(row[column]) if row[column] else None
        per_gb = number("client_cpu_s_per_gb")
        return Figures(
            bytes=moved, seconds=took, ops=ops, cpu_s=None if per_gb is None else per_gb * moved / 1e9,
            process_cpu_s=ended.cpu_s, flush_seconds=number("flush_seconds"),
            in_flight=ops / took * float(row["latency_us_mean"]) / 1e6, negotiated=row["negotiated"])

    def verify(self, load, size):
        """Every byte right at this load: what it writes (or what was laid) is read back and checked."""
        random = "rand" if load.rw.startswith("rand") else ""
        shared = {"bs": load.bs, "iodepth": load.depth, "size": size, "runtime": "1s", "ramp_time": "0s"}
        phases = [{"name": "checked", "rw": random + "read", "verify": True}]
        if load.rw.endswith("write"):
            phases.insert(0, {"name": "written", "rw": load.rw})
        workload = "description = \"right before fast\"\n" + table("defaults", shared)
        workload += "".join(table("phase", phase, "[[{}]]") for phase in phases)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "right.toml")
            with open(path, "w") as file:
                file.write(workload)
            self.rows(path, seconds=len(phases))


def table(name, keys, brackets="[{}]"):
    """A table of TOML; strings are quoted as JSON quotes them, which TOML reads."""
    return brackets.format(name) + "\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
