"""The settings page is made from the configs; `python tests/runs/test_settings_page.py` writes it anew."""

from pathlib import Path

from kernel_core.config import (
    BestOfNConfig,
    EvaluateConfig,
    IndexConfig,
    IngestConfig,
    PipelineConfig,
    TrainConfig,
    VerifyConfig,
)
from kernel_core.config.reference import settings_of

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
STAGES = {
    "ingest": IngestConfig,
    "ingest verify": VerifyConfig,
    "index": IndexConfig,
    "train and cold-start": TrainConfig,
    "evaluate and nightly": EvaluateConfig,
    "best-of-n": BestOfNConfig,
}
HEAD = """# Settings

Every setting of every stage, as `key=value` on the command line, with its default.
[cli.md](cli.md) says how presets, files, the environment and the command line are laid over one another.
`dojo pipeline` has the settings of its stages under `ingest.`, `index.`, `train.`, `evaluate.` and
`best_of_n.`, and `run` and `root`.
Some defaults depend on the kind of model: [learning.md](learning.md).
This page is written by `python tests/runs/test_settings_page.py`, and a test keeps it current.
"""


def page():
    """The page as it should be."""
    parts = [HEAD]
    for stage, config_class in STAGES.items():
        parts.append(f"\n## {stage}\n\n| setting | values | default | |\n|---|---|---|---|\n")
        for one in settings_of(config_class):
            kind, meaning = (text.replace("|", "\\|") for text in (one.kind, one.meaning))
            parts.append(f"| `{one.key}` | {kind} | {one.default} | {meaning} |\n")
    return "".join(parts)


def test_the_page_is_what_the_configs_say():
    assert PAGE.read_text() == page()


def test_a_groups_own_default_is_shown_where_a_stage_changes_it():
    defaults = {one.key: one.default for one in settings_of(EvaluateConfig)}
    assert defaults["problems.split"] == "held_out" and defaults["problems.limit"] == "24"
    assert {one.key: one.default for one in settings_of(BestOfNConfig)}["rollout.turns"] == "1"


def test_every_setting_of_a_pipeline_is_on_the_page():
    groups = ("ingest.", "index.", "train.", "evaluate.", "best_of_n.")
    for one in settings_of(PipelineConfig):
        if one.key.startswith(groups):
            assert f"`{one.key.partition('.')[2]}`" in PAGE.read_text()


if __name__ == "__main__":
    PAGE.write_text(page())
