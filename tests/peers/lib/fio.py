"""fio: built with libnfs and libiscsi from Debian's source package, which leaves both out; run, and its JSON read."""

import json
import os
import re
import shutil

from .figures import Figures
from .programs import Failed, run

ENGINES = {"nfs", "libiscsi", "io_uring", "null"}
PACKAGES = ["libnfs-dev", "libiscsi-dev", "zlib1g-dev", "gcc", "make", "dpkg-dev"]
CONFIGURE = ["--enable-libnfs", "--enable-libiscsi", "--disable-rdma", "--disable-rados", "--disable-rbd",
             "--disable-gfapi", "--disable-pmem", "--disable-native"]
RAMP_S = 0.5
STARTUP_S = 8


def find(cache):
    """The program in `cache`; built there when it is missing."""
    program = os.path.join(cache, "fio")
    if not os.path.exists(program):
        build(cache, program)
    listed = set(run([program, "--enghelp"], 10).out.split())
    if not ENGINES <= listed:
        raise Failed(f"{program} lacks {', '.join(sorted(ENGINES - listed))}; remove it to have it built again")
    return program


def build(cache, program):
    state = run(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *PACKAGES], 10, status=(0, 1)).out
    missing = [name for name in PACKAGES if f"{name} install ok installed" not in state]
    if missing:
        raise Failed(f"fio can't be built without these packages: apt install {' '.join(missing)}")
    print(f"building fio in {cache}", flush=True)
    source = os.path.join(cache, "source")
    shutil.rmtree(source, ignore_errors=True)
    apt = private_apt(os.path.join(source, "apt"))
    build_s = 900
    run(["apt-get", *apt, "update"], build_s)
    run(["apt-get", *apt, "source", "fio"], build_s, directory=source)
    (tree,) = [entry.path for entry in os.scandir(source) if entry.is_dir() and entry.name.startswith("fio-")]
    for step in (["./configure", *CONFIGURE], ["make", f"-j{os.cpu_count()}"]):
        run(step, build_s, directory=tree)
    shutil.copy(os.path.join(tree, "fio"), program)


def private_apt(directory):
    """Options that give apt the sources of the release that runs here, without a word in the machine's own lists."""
    offered = run(["apt-get", "download", "--print-uris", "fio"], 30).out
    archive = re.search(r"'(\S+?)/pool/", offered)
    if not archive:
        raise Failed("apt offers no package fio here; this build needs Debian 12 or similar")
    with open("/etc/os-release") as file:
        suite = re.search(r"^VERSION_CODENAME=(\S+)$", file.read(), re.MULTILINE)[1]
    for part in ("lists/partial", "cache/archives/partial", "parts"):
        os.makedirs(os.path.join(directory, part))
    with open(os.path.join(directory, "parts", "source.sources"), "w") as file:
        file.write(f"Types: deb-src\nURIs: {archive[1]}\nSuites: {suite}\nComponents: main\n"
                   "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n")
    settings = {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": f"{directory}/parts",
                "Dir::State::lists": f"{directory}/lists", "Dir::Cache": f"{directory}/cache"}
    return [word for key, value in settings.items() for word in ("-o", f"{key}={os.path.abspath(value)}")]


class Fio:
    """One job of fio's; `options` name its engine and its file."""

    def __init__(self, program, **options):
        self.program, self.options = program, options

    def measure(self, load, seconds):
        # norandommap: blocks may repeat, as nasgauge's do, and fio is spared its bitmap.
        ended = run(
            [self.program, "--output-format=json", "--name=peer",
             *(f"--{key}={value}" for key, value in self.options.items()),
             f"--rw={load.rw}", f"--bs={load.bs}", f"--iodepth={load.depth}", f"--size={load.size}", "--norandommap",
             "--time_based", f"--runtime={seconds}", f"--ramp_time={int(RAMP_S * 1000)}ms"],
            STARTUP_S + 2 * seconds)
        (job,) = json.loads(ended.out[ended.out.index("{"):])["jobs"]
        side = job["write" if load.rw.endswith("write") else "read"]
        if job["error"] or not side["io_bytes"]:
            raise Failed(f"fio failed with error {job['error']}: {ended.errors.strip()[-400:]}")
        # With NFS what is under way at the end fails when fio unmounts: after its clock, and never more than that.
        if ended.errors.count("Failed NFS operation") > load.depth:
            raise Failed(f"operations of fio failed: {ended.errors.strip()[-400:]}")
        return Figures(
            bytes=side["io_bytes"], seconds=side["runtime"] / 1e3, ops=side["total_ios"],
            cpu_s=(job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3, process_cpu_s=ended.cpu_s,
            in_flight=side["iops"] * side["lat_ns"]["mean"] / 1e9)


def escaped(name):
    """A file name in which fio takes ':' as it is."""
    return name.replace(":", "\\:")
