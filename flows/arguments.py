"""Types of arguments that several commands share. A command is a function: its signature is its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

Words = Annotated[str, Parameter(name="PRESET | key.sub=value", help="settings; see docs/cli.md")]
Settings = Annotated[Path | None, Parameter(name="--config", help="settings from a YAML file")]
Root = Annotated[str, Parameter(env_var="DOJO_ROOT", help="where runs are")]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
NotNegative = Annotated[int, Parameter(validator=Number(gte=0))]
Port = Annotated[int, Parameter(validator=Number(gte=1, lte=65535))]
Sizes = Annotated[
    tuple[str, ...],
    Parameter(name="--set", show_default=False, help="NAME=VALUE of a size constant; repeatable"),
]
