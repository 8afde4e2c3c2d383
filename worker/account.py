"""Who PostgreSQL runs as. It refuses to run as root, so root lends it another identity.

The first choice is a user namespace of its own: the server sees an ordinary user while every file stays ours and every
folder stays closed. Where the kernel forbids that (many containers), it is a dedicated account, which then must be able
to pass through, though not list, the folders above its data.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipeline.errors import ConfigurationError

NAME = "sapwood"


@dataclass(frozen=True, slots=True)
class Account:
    """How to start a program: behind `prefix`, as `uid` and `gid` (None: as we are), with these further groups."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None


@cache
def ordinary() -> Account:
    """Return an account that is not root.

    Raises:
        ConfigurationError: we are root, and there is neither a user namespace nor a way to make an account.
    """
    if os.geteuid() != 0:
        return Account()
    return _namespace() or _dedicated()


def _namespace() -> Account | None:
    """Return root behind a user namespace that shows it as somebody with a name, which `initdb` asks for."""
    unshare = shutil.which("unshare")
    shown = next((entry for entry in pwd.getpwall() if entry.pw_uid != 0), None)
    if unshare is None or shown is None:
        return None
    prefix = (unshare, "--user", f"--map-user={shown.pw_uid}", f"--map-group={shown.pw_gid or shown.pw_uid}", "--")
    works = subprocess.run([*prefix, "/bin/sh", "-c", ":"], capture_output=True, check=False).returncode == 0
    return Account(prefix) if works else None


def _dedicated() -> Account:
    try:
        entry = pwd.getpwnam(NAME)
    except KeyError:
        entry = _created()
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, groups=())


def _created() -> pwd.struct_passwd:
    try:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", NAME]
        subprocess.run(command, capture_output=True, check=True)
        return pwd.getpwnam(NAME)
    except (OSError, subprocess.CalledProcessError, KeyError) as error:
        raise ConfigurationError(
            f"PostgreSQL does not run as root, and no account '{NAME}' could be made for it. "
            "Run sapwood as an ordinary user, or set SAPWOOD_DATABASE_URL."
        ) from error


def hand_over(account: Account, program: Path, *folders: Path) -> None:
    """Make the folders the account's own, and let it pass through those above them and above the program.

    Costs nothing when it is so already; nothing above is made listable.
    """
    if os.geteuid() != 0:
        return
    owner = (account.uid or 0, account.gid or 0)
    for folder in folders:
        if folder.stat().st_uid != owner[0]:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, *owner, follow_symlinks=False)
    if account.uid is not None:
        for above in {parent for path in (program, *folders) for parent in path.parents}:
            if not above.stat().st_mode & 0o001:
                above.chmod(above.stat().st_mode | 0o001)
