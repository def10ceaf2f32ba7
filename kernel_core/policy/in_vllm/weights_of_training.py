"""Runs in vLLM's workers, in vLLM's environment: it imports nothing, and this folder alone is on their path.

`--worker-extension-cls weights_of_training.TakesWeights` adds the class to the worker's own classes, and
`POST /collective_rpc` calls its method on every worker.
"""

from __future__ import annotations

from typing import Any


class TakesWeights:
    """Extension of a vLLM worker that reloads its model's folder, with a tied output layer."""

    model_runner: Any
    reload_weights: Any
    """Both are the worker's own."""

    def take_weights(self) -> None:
        """Read them into the tensors that recorded graphs hold.

        vLLM's reload packs no tied output layer again, where it is packed (on CPUs): it would go on with the
        old one.
        """
        self.reload_weights()
        head = getattr(self.model_runner.get_model(), "lm_head", None)
        if (method := getattr(head, "quant_method", None)) is not None:
            method.process_weights_after_loading(head)
