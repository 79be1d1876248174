"""Samba's smbclient, reading a file as often as fills the time.

It tells neither CPU time nor a rate that could be trusted, so both are those of the whole process, less those of a session
right before that logs in and reads nothing.
"""

import math
import os
import tempfile

from .figures import Figures
from .programs import run

TIMEOUT_S = 60


class Smbclient:
    """`path` of a share, read by a user, or by a guest without one."""

    def __init__(self, server, path, size, user=None):
        self.path, self.size = path.replace("/", "\\"), size
        self.server, self.user = server, user
        self.gets = None

    def session(self, command):
        with tempfile.TemporaryDirectory() as directory:
            login = ["-N"]
            if self.user:
                # A file, since a command line is everybody's to read.
                path = os.path.join(directory, "login")
                with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                    file.write(f"username = {self.user}\npassword = {self.server['password']}\n")
                login = ["-A", path]
            return run(["smbclient", f"//127.0.0.1/{self.server['share']}", "-p", str(self.server["port"]),
                        "-s", "/dev/null", *login, "-c", command], TIMEOUT_S)

    def measure(self, _load, seconds):
        get = f'get "{self.path}" /dev/null'
        if self.gets is None:
            self.gets = max(1, math.ceil(seconds / self.session(get).wall_s))
        empty = self.session("exit")
        full = self.session("; ".join([get] * self.gets))
        return Figures(
            bytes=self.size * self.gets, seconds=full.wall_s - empty.wall_s, ops=None, cpu_s=full.cpu_s - empty.cpu_s,
            process_cpu_s=full.cpu_s)
