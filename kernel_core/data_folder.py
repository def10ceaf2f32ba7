"""Folder of problems, prompts and the shipped policy: beside the package in a checkout, and
inside it in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
DATA = _PACKAGE / "data" if (_PACKAGE / "data").is_dir() else _PACKAGE.parent / "data"
