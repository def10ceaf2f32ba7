"""Build hook: the wheel has one package, `kernel_core`, with `flows`, `tasks` and `data` inside.

Names such as `data` and `tasks` are common in other people's environments. The folders of the repository stay
as they are; their imports of each other are rewritten on the way into the wheel.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "kernel_core"
REWRITTEN = ("flows", "tasks")
_IMPORT = re.compile(r"^(\s*(?:from|import) |  - )(?=(?:flows|tasks)\b)", re.MULTILINE)
"""Imports in Python, and the build step in `prefect.yaml`."""


class OnePackage(BuildHookInterface):
    """Map everything into one package. An editable install keeps the folders of the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write rewritten copies to a temporary folder, and include them in place of the originals."""
        if version == "editable":
            return
        self._copies = tempfile.TemporaryDirectory()
        root, copies = Path(self.root), Path(self._copies.name)
        for file in (file for name in REWRITTEN for file in (root / name).rglob("*.py")):
            self._rewrite(file, copies / file.relative_to(root))
        self._rewrite(root / "prefect.yaml", copies / "prefect.yaml")
        included = {str(copies / name): f"{PACKAGE}/{name}" for name in (*REWRITTEN, "prefect.yaml")}
        included |= {str(root / name): f"{PACKAGE}/{name}" for name in ("data", "deploy/automations.yaml")}
        build_data["force_include"] |= included
        scripts = self.metadata.core.scripts
        scripts.update({name: f"{PACKAGE}.{target}" for name, target in scripts.items()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copies."""
        if version != "editable":
            self._copies.cleanup()

    def _rewrite(self, source: Path, copy: Path) -> None:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_IMPORT.sub(rf"\g<1>{PACKAGE}.", source.read_text()))
