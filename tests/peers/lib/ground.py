"""What both sides of a case are measured on: one server, or one filesystem, all of it in the sandbox's memory.

Each ground holds one test file, laid by nasgauge, which both sides read and write; iSCSI has a LUN to read and one to write.
"""

import glob
import json
import os
import subprocess

from . import place
from .nasgauge import Nasgauge
from .programs import run

WORK = "/run/nasgauge"
ROOM = 64 << 20  # beside the test file, for manifests and the filesystem itself


class Ground:
    """A server of the sandbox's, started on entering and stopped on leaving."""
    protocol = None

    def __init__(self, size):
        self.size, self.server = size, None

    def __enter__(self):
        if self.protocol:
            self.process = subprocess.Popen(
                [place.SERVERS, str(self.size + ROOM), self.protocol], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, start_new_session=True)
            (self.server,) = json.loads(self.process.stdout.readline() or "[null]")
        self.prepare()
        return self

    def __exit__(self, *_):
        if self.protocol:
            # Servers go when nothing more can come; they remove their state, and the rest is ours.
            self.process.communicate()
        for path in glob.glob(WORK + "/nfs-export/*/*") + glob.glob(WORK + "/smb-share/*/*") + glob.glob(WORK + "/lun-*"):
            os.remove(path)

    def ours(self, *options, uri=None):
        return Nasgauge(place.PROGRAM, uri or self.server["uri"], *options, password=self.server["password"])

    def prepare(self):
        self.ours().prepare(self.size)

    def data(self):
        """The test file from the root of what is served."""
        (path,) = glob.glob(self.server["directory"] + "/nasgauge-*/data.bin")
        return os.path.relpath(path, self.server["directory"])


class Nothing(Ground):
    """For targets that are no place."""

    def ours(self, *options, uri=None):
        return Nasgauge(place.PROGRAM, uri, *options)

    def prepare(self):
        pass


class Nfs(Ground):
    protocol = "nfs"

    def fio_url(self):
        path = self.server["directory"] + "/" + os.path.dirname(self.data())
        return f"nfs://127.0.0.1{path}?nfsport={self.server['port']}&mountport={self.server['mount_port']}"


class Smb(Ground):
    protocol = "smb"

    def guest_uri(self, options=""):
        return f"smb://127.0.0.1:{self.server['port']}/{self.server['share']}{options}"


class Iscsi(Ground):
    protocol = "iscsi"

    def reader(self):
        return self.ours("--read-existing", "device")

    def writer(self):
        # What fio wrote is foreign to us and safe from us, unless its serial number is named.
        uri = self.server["written_uri"]
        return self.ours("--destroy", self.ours(uri=uri).serial(), "--durability", "none", uri=uri)


class Ext4(Ground):
    """A filesystem on a loop device over a file in memory; mount frees the device when it is unmounted."""

    def prepare(self):
        image, self.mounted = WORK + "/ext4-image", WORK + "/ext4"
        with open(image, "wb") as file:
            file.truncate(self.size + self.size // 8 + ROOM)
        run(["mkfs.ext4", "-q", "-F", image], 60)
        os.makedirs(self.mounted)
        run(["mount", "-o", "loop", image, self.mounted], 60)
        self.server = {"directory": self.mounted, "uri": f"file:{self.mounted}?engine=io_uring&direct=1", "password": None,
                       "version": "ext4 on a loop device over tmpfs"}
        # Without direct=1, whose alignment is asked of a file that must be there.
        self.ours(uri=f"file:{self.mounted}").prepare(self.size)

    def __exit__(self, *_):
        run(["umount", self.mounted], 60)
        os.rmdir(self.mounted)
        os.remove(WORK + "/ext4-image")
