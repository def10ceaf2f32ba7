"""Trains with several learners: FOLDER TAUGHT CONFIG.json."""

import sys
from pathlib import Path

import torch

from kernel_core.config import TrainConfig
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.loop import Trainer
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.runs.placement import placed
from kernel_core.store import Store

if __name__ == "__main__":
    folder, taught, config_file = sys.argv[1:]
    asked = TrainConfig.model_validate_json(Path(config_file).read_text())
    config = placed(asked, torch.cuda.device_count())
    torch.set_num_threads(1)
    with open_gym(config.gym, gpus=config.placement.judge) as gym:
        trainer = Trainer(config, Store(folder), TorchPolicy.load(taught, config.policy), gym)
        while not trainer.done:
            trainer.step()
        trainer.close()
