"""A server's model in this process: LoRA in torch behind the eight operations, and faults on demand."""

import copy

import torch

from kernel_core.errors import SourceUnavailable
from kernel_core.learn.update import new_optimiser, set_rate
from kernel_core.policy.chat_tokens import Drawn
from kernel_core.policy.remote_model import Learned, SavedModel
from kernel_core.policy.torch_policy import TorchPolicy, uniforms


class RemoteInTorch:
    """What a server does between requests is here one call; it keeps every state that was saved."""

    def __init__(self, folder, config):
        self.trained = TorchPolicy.load(folder, config)
        self.sampling = TorchPolicy.load(folder, config)
        self.optimiser = new_optimiser(self.trained.model, 1e-3)
        self.kept, self.calls, self.fail_at = {}, 0, None

    def take(self, saved):
        weights, optimiser = self.kept[saved.state]
        self.trained.model.load_state_dict(weights)
        self.optimiser.load_state_dict(copy.deepcopy(optimiser))
        self.sampling.model.load_state_dict(self.kept[saved.sampler][0])

    def logprobs(self, answers):
        self._called()
        return [self.trained.logprobs(one.prompt_ids, one.answer_ids, 1.0) for one in answers]

    def learn(self, answers, lr, max_grad_norm, weight_decay=0.0):
        self._called()
        set_rate(self.optimiser, lr)
        read = []
        for one in answers:
            ids = torch.tensor([[*one.prompt_ids, *one.answer_ids]])
            logits = self.trained.model(input_ids=ids).logits[0, len(one.prompt_ids) - 1 : -1]
            now = torch.log_softmax(logits.float(), -1).gather(1, ids[0, len(one.prompt_ids) :, None])[:, 0]
            ratio = torch.exp(now - torch.from_numpy(one.old_logprobs))
            (-(ratio * torch.from_numpy(one.weights)).sum()).backward()
            read.append(now.detach().numpy())
        parameters = [p for p in self.trained.model.parameters() if p.requires_grad]
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm or float("inf"))
        self.optimiser.step()
        self.optimiser.zero_grad()
        return Learned(read, float(norm))

    def publish(self, name):
        self._called()
        self.sampling.model.load_state_dict(self.trained.model.state_dict())

    def save(self, name):
        self._called()
        weights = {key: value.clone() for key, value in self.trained.model.state_dict().items()}
        self.kept[name] = self.kept[f"{name}-sampler"] = (weights, copy.deepcopy(self.optimiser.state_dict()))
        return SavedModel(name, f"{name}-sampler")

    def sample(self, prompts, *, max_new, temperature, seeds, end_ids):
        self._called()
        rows = self.sampling._decode(
            prompts,
            max_new=max_new,
            uniforms_B_T=uniforms(seeds, range(len(prompts)), max(max_new)),
            temperature=temperature,
            end_ids=end_ids,
            pad_id=0,
        )
        return [Drawn(row.token_ids, row.logprobs, row.stopped) for row in rows]

    def sampler_logprobs(self, answer):
        return self.sampling.logprobs(answer.prompt_ids, answer.answer_ids, 1.0)

    def close(self):
        pass

    def _called(self):
        self.calls += 1
        if self.calls == self.fail_at:
            raise SourceUnavailable("the server is away")
