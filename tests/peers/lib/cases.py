"""The comparisons: what is measured, against whom, and how good it must be (a bar bounds ours / peer, from below for
throughput and from above for the rest)."""

from dataclasses import dataclass
from typing import Callable

from . import ground
from .fio import Fio, escaped
from .smbclient import Smbclient

KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Case:
    name: str
    ground: type
    peer_name: str
    rw: str
    bs: int
    depth: int
    ours: Callable  # of the ground
    peer: Callable  # of the ground and of fio's path
    bars: dict  # by metric
    peer_load: tuple | None = None  # block size and depth of the peer, where they are not ours
    stores: bool = True  # something is there to be verified


def nfs(name, rw, bs, depth, throughput, cpu):
    # COMMIT lies within our clock, and fio makes none: its rate is what the server accepted, ours what it keeps.
    return Case(name, ground.Nfs, "fio nfs", rw, bs, depth,
                lambda place: place.ours(),
                lambda place, fio: Fio(fio, ioengine="nfs", nfs_url=place.fio_url(), filename="data.bin"),
                {"throughput": throughput, "cpu": cpu})


# fio sends the same buffers again and again unless it is told to fill them anew for each block, as we do.
REFILLED = {"refill_buffers": 1}


def iscsi(name, rw, bs, depth, **fio_options):
    writes = rw.endswith("write")
    uri = "written_uri" if writes else "uri"
    return Case(name, ground.Iscsi, "fio libiscsi", rw, bs, depth,
                lambda place: place.writer() if writes else place.reader(),
                lambda place, fio: Fio(fio, ioengine="libiscsi", filename=escaped(place.server[uri]), **fio_options),
                {"throughput": 0.97, "cpu": 1.05})


def file(name, rw, bs, depth, **fio_options):
    return Case(name, ground.Ext4, "fio io_uring", rw, bs, depth,
                lambda place: place.ours("--durability", "none"),
                lambda place, fio: Fio(fio, ioengine="io_uring", direct=1,
                                       filename=f"{place.mounted}/{place.data()}", **fio_options),
                {"throughput": 1.0, "cpu": 1.0})


CASES = [
    nfs("nfs-read-1m-q4", "read", MIB, 4, 1.10, 0.80),
    nfs("nfs-write-1m-q4", "write", MIB, 4, 1.0, 0.70),
    nfs("nfs-randread-4k-q32", "randread", 4 * KIB, 32, 1.25, 0.55),
    nfs("nfs-randread-4k-q1", "randread", 4 * KIB, 1, 1.0, 0.9),
    nfs("nfs-randread-4k-q8", "randread", 4 * KIB, 8, 1.0, 0.9),
    Case("smb-read-pavao-4m", ground.Smb, "smbclient get", "read", 4 * MIB, 1,
         lambda place: place.ours(),
         lambda place, _: Smbclient(place.server, place.data(), place.size, user=place.server["user"]),
         {"throughput": 1.2, "cpu": 1.1}),
    Case("smb-read-smb2-2m-q4", ground.Smb, "smbclient get", "read", 2 * MIB, 4,
         lambda place: place.ours(uri=place.guest_uri("?engine=smb2")),
         lambda place, _: Smbclient(place.server, place.data(), place.size),
         {"throughput": 1.2, "cpu": 1.1}),
    Case("smb-randread-4k-q32", ground.Smb, "our own pavao, one lane", "randread", 4 * KIB, 32,
         lambda place: place.ours(uri=place.guest_uri("?engine=smb2")),
         lambda place, _: place.ours(),
         {"throughput": 3.5, "cpu": None}, peer_load=(4 * KIB, 1)),
    iscsi("iscsi-read-256k-q8", "read", 256 * KIB, 8),
    iscsi("iscsi-write-256k-q8", "write", 256 * KIB, 8),
    iscsi("iscsi-write-256k-q8-refilled", "write", 256 * KIB, 8, **REFILLED),
    iscsi("iscsi-randread-4k-q32", "randread", 4 * KIB, 32),
    file("file-randread-4k-q32", "randread", 4 * KIB, 32),
    file("file-read-1m-q4", "read", MIB, 4),
    file("file-randwrite-4k-q32", "randwrite", 4 * KIB, 32),
    file("file-write-1m-q4", "write", MIB, 4),
    file("file-write-1m-q4-refilled", "write", MIB, 4, **REFILLED),
    Case("null", ground.Nothing, "fio null", "read", 4 * KIB, 1,
         lambda place: place.ours(uri="null:"),
         lambda _, fio: Fio(fio, ioengine="null"),
         {"ns_per_op": 0.40}, stores=False),
]
