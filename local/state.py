"""Where a checkout's run keeps its state: `.daybook/`, its ports, its key rings, its servers' data."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import random
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.ground.errors import DaybookError

# Outside the range from which systems take ports for outgoing connections, so a kept one stays free.
PORTS: Final = range(20_000, 30_000)
SYSTEM_FOLDERS: Final = (Path("/var/lib/daybook"), Path("/var/tmp/daybook"))  # noqa: S108 - checked to be root's


class NoFreePort(DaybookError):
    """Every port that may be ours is taken."""


class FolderNotOurs(DaybookError):
    """A state folder belongs to another user; the message says what to do."""


class AlreadyUp(DaybookError):
    """Another `daybook up` is alive for this folder."""


@dataclass(frozen=True, slots=True)
class State:
    """The folder of one checkout's run."""

    folder: Path

    @classmethod
    def of(cls, checkout: Path, folder: Path | None = None) -> State:
        """Make the state folder of a checkout, or find it again; `folder` puts it elsewhere."""
        folder = folder or checkout / ".daybook"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise FolderNotOurs(f"{folder} belongs to another user: run as that user, or move the folder away")
        for name in ("logs", "run"):
            (folder / name).mkdir(exist_ok=True)
        return cls(folder)

    @property
    def logs(self) -> Path:
        """Give the folder of the logs, one per process."""
        return self.folder / "logs"

    @property
    def ready_file(self) -> Path:
        """Give the file that exists while everything is up, and says where."""
        return self.folder / "ready.json"

    @property
    def servers(self) -> Path:
        """Give the folder of the servers' data; as root it is a pointer to one that `nobody` can reach."""
        pointer = self.folder / "servers"
        if os.geteuid() != 0:
            pointer.mkdir(mode=0o700, exist_ok=True)
            return pointer.resolve()
        # A copied checkout brings its original's pointer along, and each must keep to its own servers; a folder that was
        # deleted takes its keys along, and what it pointed to opens to nobody.
        own = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]
        target = pointer.resolve()
        if not (target.is_dir() and target.parent == system_folder() and target.name.startswith(own)):
            target = system_folder() / f"{own}-{secrets.token_hex(4)}"
            target.mkdir(mode=0o755)
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(target)
        return target

    def port(self, name: str) -> int:
        """Give the port kept under this name; choose a free one the first time."""
        kept: dict[str, int] = self._kept("ports.json")
        return kept[name] if name in kept else self.new_port(name)

    def new_port(self, name: str) -> int:
        """Choose a free port for this name and keep it."""
        kept: dict[str, int] = self._kept("ports.json")
        kept[name] = free_port(besides=kept.values())
        write_private(self.folder / "ports.json", json.dumps(kept, indent=1))
        return kept[name]

    def rings(self) -> Mapping[str, str]:
        """Give the key rings of this checkout; make them the first time. Losing them loses the vault."""
        kept: dict[str, str] = self._kept("rings.json")
        if not kept:
            kept = {name: new_ring() for name in ("DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING")}
            write_private(self.folder / "rings.json", json.dumps(kept, indent=1))
        return kept

    def _kept(self, name: str) -> dict[str, Any]:
        file = self.folder / name
        kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return kept

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold this folder for one run; raise AlreadyUp when another holds it. The kernel frees it if we are killed."""
        with (self.folder / "run" / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise AlreadyUp(f"Daybook is already up in {self.folder} (pid {holder}); stop that one first") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def system_folder() -> Path:
    """Give root's own folder that every user may enter but not write; for what `nobody` must reach."""
    for folder in SYSTEM_FOLDERS:
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
        except OSError:
            continue
        # A folder that somebody else put there first could hold anything.
        if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o755)
            return folder
    raise FolderNotOurs(f"none of {', '.join(map(str, SYSTEM_FOLDERS))} can be made or is root's; set DATABASE_URL and REDIS_URL")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for servers that nobody needs afterwards, where a server that runs as `nobody` can reach it."""
    folder = Path(tempfile.mkdtemp(prefix="daybook-", dir="/var/tmp" if os.geteuid() == 0 else None))  # noqa: S108 - any user may enter
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def new_ring() -> str:
    """Make a ring of one new key: `id:key`, 32 random bytes in URL-safe base64."""
    return f"k{secrets.token_hex(2)}:{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}"


def free_port(*, besides: Iterable[int] = ()) -> int:
    """Find a port of the loopback address that nobody listens on."""
    taken = set(besides)
    for port in random.sample(PORTS, len(PORTS)):
        if port not in taken and is_free(port):
            return port
    raise NoFreePort(f"no port from {PORTS.start} to {PORTS.stop} is free")


def is_free(port: int) -> bool:
    """Say whether the port could be listened on now."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are only lingering is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_private(file: Path, text: str) -> None:
    """Write a file that only we may read, whole or not at all."""
    beside = file.with_name(f".{file.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    beside.replace(file)


def keep_password(file: Path) -> str:
    """Give the password kept in `file`; make one the first time."""
    if not file.exists():
        write_private(file, secrets.token_urlsafe(24))
    return file.read_text()
