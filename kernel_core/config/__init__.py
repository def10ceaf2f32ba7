"""One frozen config a stage.

The defaults are the vetted setting on a laptop's CPU. A flow's parameter is its config, so the same
fields make the form in the Prefect UI; presets are the deployments in `prefect.yaml`.
"""

from kernel_core.config.base import Config
from kernel_core.config.cold_start import ColdStartConfig
from kernel_core.config.compare import Arm, CompareConfig
from kernel_core.config.corpus import IndexConfig, IngestConfig, ProblemsConfig, VerifyConfig, WeightedSuite
from kernel_core.config.curriculum import CurriculumConfig, RewardWeights, StageConfig
from kernel_core.config.environment import EnvironmentConfig, ServeConfig
from kernel_core.config.evaluate import BestOfNConfig, EvaluateConfig, asked
from kernel_core.config.gym import GymConfig
from kernel_core.config.pipeline import PipelineConfig, RoundsConfig
from kernel_core.config.placement import PLACES, PlacementConfig
from kernel_core.config.policy import PolicyConfig, SamplingConfig
from kernel_core.config.rollout import RetrievalConfig, RolloutConfig, RolloutStageConfig, suited
from kernel_core.config.train import MismatchConfig, SamplerConfig, TrainConfig

__all__ = [
    "PLACES",
    "Arm",
    "BestOfNConfig",
    "ColdStartConfig",
    "CompareConfig",
    "Config",
    "CurriculumConfig",
    "EnvironmentConfig",
    "EvaluateConfig",
    "GymConfig",
    "IndexConfig",
    "IngestConfig",
    "MismatchConfig",
    "PipelineConfig",
    "PlacementConfig",
    "PolicyConfig",
    "ProblemsConfig",
    "RetrievalConfig",
    "RewardWeights",
    "RolloutConfig",
    "RolloutStageConfig",
    "RoundsConfig",
    "SamplerConfig",
    "SamplingConfig",
    "ServeConfig",
    "StageConfig",
    "TrainConfig",
    "VerifyConfig",
    "WeightedSuite",
    "asked",
    "suited",
]
