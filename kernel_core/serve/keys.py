"""Keys of clients: which client a request belongs to."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from kernel_core.errors import ConfigError, NotFound

LEAST_CHARACTERS = 16
"""Keys are secrets of machines; a shorter one could be guessed."""


class Keys:
    """Clients of a service with the hashes of their keys."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        for name, key in keys.items():
            if len(key) < LEAST_CHARACTERS:
                raise ConfigError(f"the key of {name} is shorter than {LEAST_CHARACTERS} characters")
        self._digests = {name: _digest(key) for name, key in keys.items()}
        if len(set(self._digests.values())) < len(self._digests):
            raise ConfigError("two clients have the same key; give each its own")

    def share_of(self, capacity: int) -> int:
        """Return the calls that one client may have in work: all where it is alone, else half."""
        return capacity if len(self._digests) == 1 else -(-capacity // 2)

    def client_of(self, authorization: str | None) -> str | None:
        """Return the client's name by its `Authorization` header; None for a wrong key.

        `Bearer KEY` is the usual form. `Basic` with the key as the password serves clients that only take a
        URL, such as OpenEnv's: `ws://any:KEY@host`. The time taken tells nothing about the keys.
        """
        scheme, _, value = (authorization or "").partition(" ")
        if scheme.lower() == "basic":
            value = _password(value)
        elif scheme.lower() != "bearer":
            return None
        digest = _digest(value.strip())
        matches = [name for name, known in self._digests.items() if hmac.compare_digest(known, digest)]
        return matches[0] if matches else None


def read_keys(file: Path) -> Keys:
    """Keys from a file with `NAME KEY` on each line; empty lines and `#` comments are skipped."""
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise NotFound(f"cannot read the keys {file}: {error.strerror}") from error
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if words and (len(words) != 2 or words[0] in keys):
            raise ConfigError(f"{file}, line {number}: wanted `NAME KEY` with a new name")
        if words:
            keys[words[0]] = words[1]
    if not keys:
        raise ConfigError(f"{file} has no keys; each line is `NAME KEY`")
    return Keys(keys)


def _password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
