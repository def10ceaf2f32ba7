"""A folder of problems as a source: the generator's answers, kept where the judge accepts them."""

import contextlib

import pytest

from kernel_core.config import IngestConfig
from kernel_core.corpus.answered_source import Answering
from kernel_core.corpus.registry import find_source, read_registry
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.errors import CallerError, NotFound
from kernel_core.harvest.package_problems import training_problems
from kernel_core.store import Store

MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.fc(x)) {end}


def get_inputs():
    return [torch.randn(5, 8)]


def get_init_inputs():
    return [8]
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "harvested"
    made.mkdir()
    (made / "block.py").write_text(MODULE.format(end="+ x"))
    (made / "broken.py").write_text(MODULE.format(end="+ torch.randn(7, 9)"))  # no judge can run it
    return made


@pytest.mark.exhaustive
def test_answers_are_exemplars_once_they_are_judged_correct(folder, tmp_path, quick_gym):
    config = IngestConfig(sources=(f"problems:{folder}",), decontaminate_against=())
    store = Store(str(tmp_path / "snapshot"))
    build_snapshot(
        config, store, answering=Answering(lambda: contextlib.nullcontext(quick_gym), training_problems)
    )
    found = load_snapshot(store)
    assert found and all("fc" in one.reference_code for one in found)
    assert {one.source for one in found} == {"problems-harvested"}
    assert {one.verified.value for one in found} == {"correct"}
    assert all("class ModelNew" in one.kernel_code and "@triton.jit" in one.kernel_code for one in found)
    refused = [entry["reason"] for entry in store.read_json("report.json")["dropped"]]
    assert "no kernel written" in refused


def test_a_folder_without_problems_and_an_ingest_without_judges_are_refused(folder, tmp_path):
    with pytest.raises(NotFound, match="no problem files"):
        find_source(f"problems:{tmp_path / 'nowhere'}", read_registry())
    with pytest.raises(CallerError, match="no judge was given"):
        build_snapshot(IngestConfig(sources=(f"problems:{folder}",)), Store(str(tmp_path / "s")))


def test_a_package_that_is_not_installed_is_refused():
    with pytest.raises(NotFound, match="no package nowhere_to_be_seen is installed"):
        find_source("package:nowhere_to_be_seen", read_registry())


def test_a_changed_folder_is_another_revision(folder):
    before = find_source(f"problems:{folder}", read_registry())
    (folder / "block.py").write_text(MODULE.format(end="- x"))
    assert find_source(f"problems:{folder}", read_registry()).revision != before.revision
