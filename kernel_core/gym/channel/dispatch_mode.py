"""A dispatch mode that does not drag torch's compiler in."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class LightDispatchMode(TorchDispatchMode):
    """`TorchDispatchMode` without its wrapper for Dynamo. Importing Dynamo takes several seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
