"""The settings page is made from the configs; `python tests/runs/test_settings_page.py` writes it anew."""

from pathlib import Path

from kernel_core.config import (
    BestOfNConfig,
    CompareConfig,
    EvaluateConfig,
    GymConfig,
    IndexConfig,
    IngestConfig,
    PipelineConfig,
    PlacementConfig,
    PolicyConfig,
    ProblemsConfig,
    RolloutConfig,
    TrainConfig,
    VerifyConfig,
)
from kernel_core.config.reference import settings_of

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
STAGES = {
    "pipeline": PipelineConfig,
    "compare": CompareConfig,
    "ingest": IngestConfig,
    "ingest verify": VerifyConfig,
    "index": IndexConfig,
    "train and cold-start": TrainConfig,
    "evaluate and nightly": EvaluateConfig,
    "best-of-n": BestOfNConfig,
}
GROUPS = {
    "policy": PolicyConfig,
    "rollout": RolloutConfig,
    "gym": GymConfig,
    "placement": PlacementConfig,
    "problems": ProblemsConfig,
}
"""Groups of settings that several stages share."""
OF_OTHERS = ("ingest.", "index.", "train.", "evaluate.", "best_of_n.", "rounds.teach.")
"""Groups of a pipeline or a comparison that are the settings of other stages."""
HEAD = """# Settings

Every setting as it is written on the command line, with its default; `null` is no value.
A description begins with the values, or with the type where the default does not show it.
`dojo pipeline` takes those of its stages under `ingest.`, `index.`, `train.`, `evaluate.` and `best_of_n.`,
and those of `cold_start.` under `rounds.teach.`; `dojo compare` those under `train.` and `evaluate.`.
Presets, files, the environment and the command line: [cli.md](cli.md). Defaults that depend on the model:
[learning.md](learning.md). `python tests/runs/test_settings_page.py` writes this page.
"""
TABLE = "| setting and default | description |\n|---|---|\n"
SHOWN_BY_DEFAULT = ("int", "float", "bool", "str", "mapping", "list[int]", "list[float]", "list[str]")
"""Types that a default other than `null` shows."""


def page():
    """The page as it should be."""
    stages = "".join(f"\n## {name}\n\n{_stage(config_class)}" for name, config_class in STAGES.items())
    groups = "".join(
        f"\n## {name}\n\n{TABLE}{_rows(settings_of(group, f'{name}.'))}" for name, group in GROUPS.items()
    )
    return HEAD + stages + groups


def _stage(config_class):
    """A stage's own settings, its groups, and where their defaults are others than the group's."""
    own, names, changed = [], [], []
    usual = {row.key: row for name, group in GROUPS.items() for row in settings_of(group, f"{name}.")}
    for row in settings_of(config_class):
        if row.key.startswith(OF_OTHERS):
            continue
        name = row.key.partition(".")[0]
        if name not in GROUPS:
            own.append(row)
            continue
        if name not in names:
            names.append(name)
        if row != usual[row.key]:
            changed.append(f"`{row.key}={row.default}`")
    links = ", ".join(f"[{name}](#{name})" for name in names)
    other = f" Defaults here: {', '.join(changed)}." if changed else ""
    return TABLE + _rows(own) + (f"\nGroups: {links}.{other}\n" if names else "")


def _rows(settings):
    lines = []
    for row in settings:
        shown = row.kind in SHOWN_BY_DEFAULT and row.default != "null"
        meaning = (row.meaning if shown else f"{row.kind}: {row.meaning}").replace("|", "\\|")
        setting = f"`{row.key}=` {row.default}" if "`" in row.default else f"`{row.key}={row.default}`"
        lines.append(f"| {setting} | {meaning} |\n")
    return "".join(lines)


def test_the_page_is_what_the_configs_say():
    assert PAGE.read_text() == page()


def test_a_groups_own_default_is_shown_where_a_stage_changes_it():
    defaults = {row.key: row.default for row in settings_of(EvaluateConfig)}
    assert defaults["problems.split"] == "held_out" and defaults["problems.limit"] == "24"
    assert {row.key: row.default for row in settings_of(BestOfNConfig)}["rollout.turns"] == "1"
    best_of_n = page().split("## best-of-n")[1].split("\n## ")[0]
    assert "`problems.limit=6`" in best_of_n and "`rollout.turns=1`" in best_of_n


def test_every_setting_of_a_pipeline_is_on_the_page():
    groups = ("ingest.", "index.", "train.", "evaluate.", "best_of_n.")
    for row in settings_of(PipelineConfig):
        if row.key.startswith(groups):
            assert f"`{row.key.partition('.')[2]}=" in PAGE.read_text()


def test_every_setting_has_a_type_and_a_description():
    for row in settings_of(PipelineConfig):
        assert row.meaning and row.kind and row.default, row.key


if __name__ == "__main__":
    PAGE.write_text(page())
