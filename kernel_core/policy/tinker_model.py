"""LoRA model on a server with Tinker's API, through Tinker's own client (the extra `tinker`).

Training clients are made on first use, from the state that was saved last, and forgotten after any trouble.
So a server that was restarted between two saves costs nothing, and one that was restarted in the middle of an
update is found out: the weights since the save are lost, and `take` has to bring the run back there.

How a server reduces the loss decides what a row counts. Tinker sums over all tokens, and says `loss:sum`.
SkyRL's JAX backend says nothing; it divides each row by its tokens, prompt included, and the whole by the
number of rows. Weights are scaled so that both make the same gradient.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, SourceUnavailable, first_line
from kernel_core.policy.chat_tokens import Drawn, Ids
from kernel_core.policy.remote_model import Answered, Floats, Learned, SavedModel, Weighted
from kernel_core.policy.tinker_rows import answer_logprobs, datum, num_targets, scaled, zeros

log = logging.getLogger(__name__)

KEY = "TINKER_API_KEY"
SEED = 0
"""The seed of new adapters: one of the two factors is zero, so it changes no output, but runs repeat."""
BETAS, EPS = (0.9, 0.95), 1e-10
"""AdamW's, as `learn/update.py` has them."""
LOSS = "importance_sampling"
SUM = "loss:sum"
SUM_TOLERANCE = 0.02
"""Relative; a server may compute in bfloat16."""


def require_client() -> None:
    """Raise `ConfigError` where the client or its key is not there."""
    if importlib.util.find_spec("tinker") is None:
        raise ConfigError(
            "policy.kind = tinker needs the package tinker: uv pip install 'kernel-dojo[tinker]'"
        )
    if not os.environ.get(KEY):
        raise ConfigError(f"policy.kind = tinker needs a key in the environment variable {KEY}")


class TinkerModel:
    """See `RemoteModel`."""

    def __init__(self, config: PolicyConfig, saved: SavedModel | None = None) -> None:
        """`saved` names the weights to begin with; without it they are the base model's."""
        require_client()
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        self._config = config
        self._where = config.endpoint or "Tinker's service"
        self._saved = saved
        self._moved = False
        """True if the training weights differ from the saved ones."""
        self._published = saved.sampler if saved is not None else None
        self._service: Any = None
        self._training: Any = None
        self._sampler: Any = None
        self._sums: bool | None = None

    def check(self) -> None:
        """Raise `ConfigError` for a model that the server does not have."""
        capabilities = self._do("its capabilities", lambda: self._client().get_server_capabilities())
        names = [model.model_name for model in capabilities.supported_models if model.model_name]
        if names and self._config.model not in names:
            raise ConfigError(f"{self._where} has no model {self._config.model}; it has {', '.join(names)}")

    def take(self, saved: SavedModel) -> None:
        """See `RemoteModel`."""
        self._saved, self._published, self._moved = saved, saved.sampler, False
        self._training = self._sampler = None

    def logprobs(self, answers: Sequence[Answered]) -> list[Floats]:
        """See `RemoteModel`."""
        rows = [
            datum(answer.prompt_ids, answer.answer_ids, *zeros(len(answer.answer_ids))) for answer in answers
        ]
        output = self._do("a forward pass", lambda: self._trainer().forward(rows, LOSS))
        self._sums = SUM in output.metrics
        return answer_logprobs(output, answers)

    def learn(
        self,
        answers: Sequence[Weighted],
        lr: float,
        max_grad_norm: float | None,
        weight_decay: float = 0.0,
    ) -> Learned:
        """See `RemoteModel`. The optimiser step is sent once the gradient is there: sent together, SkyRL's
        server was seen to take them in the other order."""
        from tinker import types

        if self._sums is None:
            self.logprobs([Answered(answers[0].prompt_ids, answers[0].answer_ids)])
        sums, training = bool(self._sums), self._do("opening its model", self._trainer)
        rows = [
            datum(
                answer.prompt_ids,
                answer.answer_ids,
                answer.old_logprobs,
                scaled(answer.weights, num_targets(answer), len(answers), sums=sums),
            )
            for answer in answers
        ]
        adam = types.AdamParams(
            learning_rate=lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            eps=EPS,
            weight_decay=weight_decay,
            grad_clip_norm=max_grad_norm or 0.0,
        )
        self._moved = True
        output = self._do("a backward pass", lambda: training.forward_backward(rows, LOSS))
        stepped = self._do("an optimiser step", lambda: training.optim_step(adam))
        logprobs = answer_logprobs(output, answers)
        if sums:
            self._check_sum(output.metrics[SUM], answers, logprobs)
        named = (stepped.metrics or {}).items()
        norms = [value for name, value in named if name.split("/")[-1].startswith("grad_norm")]
        if norms and norms[0] == 0.0 and any(answer.weights.any() for answer in answers):
            raise SourceUnavailable(f"{self._where} made an optimiser step without the gradient before it")
        return Learned(logprobs, float(norms[0]) if norms else None)

    def publish(self, name: str) -> None:
        """See `RemoteModel`."""
        path = self._do("saving for the sampler", lambda: self._trainer().save_weights_for_sampler(name)).path
        self._published, self._sampler = path, None

    def save(self, name: str) -> SavedModel:
        """See `RemoteModel`."""
        self.publish(f"{name}-sampler")
        assert self._published is not None
        state = self._do("saving its state", lambda: self._trainer().save_state(name)).path
        self._saved, self._moved = SavedModel(state, self._published), False
        return self._saved

    def sample(
        self,
        prompts: Sequence[Ids],
        *,
        max_new: Sequence[int],
        temperature: float,
        seeds: Sequence[int],
        end_ids: Sequence[int],
    ) -> list[Drawn]:
        """See `RemoteModel`. All prompts are under way at once: the server batches them."""
        from tinker import types

        sampler = self._do("opening its sampler", self._sampling)
        futures = [
            sampler.sample(
                types.ModelInput.from_ints(prompt.tolist()),
                1,
                types.SamplingParams(
                    max_tokens=tokens, temperature=temperature, seed=seed % 2**31, stop=list(end_ids)
                ),
            )
            for prompt, tokens, seed in zip(prompts, max_new, seeds, strict=True)
        ]
        return [self._drawn(self._do("a sample", future)) for future in futures]

    def sampler_logprobs(self, answer: Answered) -> Floats:
        """See `RemoteModel`."""
        from tinker import types

        ids = types.ModelInput.from_ints([*answer.prompt_ids.tolist(), *answer.answer_ids.tolist()])
        logprobs = self._do("log-probabilities", lambda: self._sampling().compute_logprobs(ids))
        # Tinker has a place for the first token, which nothing predicts; SkyRL's server has none.
        return np.array(logprobs[-len(answer.answer_ids) :], np.float32)

    def close(self) -> None:
        """See `RemoteModel`."""
        self._forget()

    def _check_sum(self, reported: float, answers: Sequence[Weighted], logprobs: Sequence[Floats]) -> None:
        """Raise `ConfigError` where a server's loss is not the sum over tokens."""
        expected = -sum(
            float((np.exp(now - answer.old_logprobs) * answer.weights).sum())
            for answer, now in zip(answers, logprobs, strict=True)
        )
        size = sum(float(np.abs(answer.weights).sum()) for answer in answers)
        if not math.isclose(reported, expected, abs_tol=SUM_TOLERANCE * size):
            raise ConfigError(
                f"{self._where} reports a loss of {reported:.4g} where the sum over tokens is {expected:.4g}"
                ": it reduces the loss in a way that is not known here"
            )

    def _drawn(self, answer: Any) -> Drawn:
        sequence = answer.sequences[0]
        tokens, logprobs = list(sequence.tokens), sequence.logprobs
        if logprobs is None or len(logprobs) != len(tokens):
            given = 0 if logprobs is None else len(logprobs)
            raise SourceUnavailable(
                f"{self._where} answered {len(tokens)} tokens with {given} log-probabilities; training "
                "needs one a token"
            )
        is_stopped = sequence.stop_reason == "stop"
        return Drawn(np.array(tokens, np.int32), np.array(logprobs, np.float32), is_stopped)

    def _client(self) -> Any:
        if self._service is None:
            import tinker

            self._service = tinker.ServiceClient(base_url=self._config.endpoint)
        return self._service

    def _trainer(self) -> Any:
        """Return the training client, with the saved weights where there is none."""
        if self._training is None:
            if self._moved:
                raise SourceUnavailable(
                    f"{self._where} lost an update; the run goes back to its newest checkpoint"
                )
            service = self._client()
            if self._saved is not None:
                state = self._saved.state
                self._training = service.create_training_client_from_state_with_optimizer(state)
            else:
                rank = self._config.lora_rank
                self._training = service.create_lora_training_client(self._config.model, rank=rank, seed=SEED)
        return self._training

    def _sampling(self) -> Any:
        if self._sampler is None:
            model = {"base_model": self._config.model} if self._published is None else {}
            self._sampler = self._client().create_sampling_client(model_path=self._published, **model)
        return self._sampler

    def _do(self, what: str, ask: Any) -> Any:
        """Return the answer to a request: a future, or a call that returns one or the answer.

        After an error the connection is dropped.
        """
        try:
            asked = ask() if callable(ask) else ask
            return asked.result(timeout=self._config.timeout_s) if hasattr(asked, "result") else asked
        except SourceUnavailable:
            raise
        except Exception as error:  # the client raises its own errors, httpx's, and bare ValueErrors
            self._forget()
            raise self._trouble(what, error) from error

    def _trouble(self, what: str, error: Exception) -> Exception:
        import tinker

        if isinstance(error, tinker.AuthenticationError | tinker.PermissionDeniedError):
            return ConfigError(f"{self._where} refuses the key in {KEY}; set a valid one")
        if isinstance(error, TimeoutError):
            reason = f"no answer in {self._config.timeout_s:g} s (policy.timeout_s)"
        else:
            reason = f"{type(error).__name__}: {first_line(error)}"
        return SourceUnavailable(
            f"{self._where} did not do {what}: {reason}; nothing of this step was learned from it. "
            "Start the server again and run the same command"
        )

    def _forget(self) -> None:
        service, self._service = self._service, None
        self._training = self._sampler = None
        if service is not None:
            service.holder.close()
