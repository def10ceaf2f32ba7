"""Check, before a command's work, that it can write its output."""

from __future__ import annotations

from pathlib import Path

from kernel_core.errors import ConfigError, StoreFault


def require_writable(option: str, file: Path, *inputs: Path) -> None:
    """Make the folder of an output, and leave the file itself as it is.

    Raises `ConfigError` where it is a folder or one of the `inputs`, `StoreFault` where it cannot be written.
    """
    try:
        if file.is_dir():
            raise ConfigError(f"{option} {file} is a folder; give the path of a file")
        for source in inputs:
            if file.exists() and source.exists() and file.samefile(source):
                raise ConfigError(f"{option} {file} would overwrite {source}; give another file")
        file.parent.mkdir(parents=True, exist_ok=True)
        was_there = file.exists()
        with file.open("ab"):  # leaves what is in it
            pass
        if not was_there:
            file.unlink()
    except OSError as error:
        raise StoreFault(f"cannot write {option} {file}: {error.strerror}") from error
