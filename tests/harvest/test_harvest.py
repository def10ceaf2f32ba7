"""`dojo harvest`: what a package gives, what it does not, and that each problem is one."""

from __future__ import annotations

import pytest
import torch

from flows.cli import run
from kernel_core.corpus.snapshot import load_snapshot
from kernel_core.gym.oracle.problem_module import ProblemModule
from kernel_core.harvest.packages import Library, find_package, permissive_licence
from kernel_core.problems.load import load_folder, resize
from kernel_core.records import Verdict
from kernel_core.store import Store


def names_in(manifest: dict, form: str) -> set[str]:
    return {
        row["qualified_names"][0].rpartition(".")[2] for row in manifest["problems"] if row["form"] == form
    }


def problems_in(out):
    return [
        problem
        for split in ("train", "held_out")
        if any((out / split).iterdir())
        for problem in load_folder(out / split)
    ]


def test_modules_and_functions_that_stand_alone_become_problems(harvested):
    _, manifest, _ = harvested
    assert names_in(manifest, "class") == {"GatedNorm", "Residual", "Configured", "Pair"}
    assert names_in(manifest, "function") == {"gated", "squared_error"}
    assert names_in(manifest, "composition")


def test_every_row_keeps_origin_and_licence(harvested):
    out, manifest, _ = harvested
    for row in manifest["problems"]:
        assert (row["package"], row["version"], row["licence"]) == ("lattice", "1.2", "MIT")
        text = (out / row["file"]).read_text()
        assert f"# From {', '.join(row['qualified_names'])} (lattice 1.2, MIT), adapted." in text
        if row["qualified_names"][0].startswith("lattice.layers"):
            assert "# Copyright 2024 The Lattice Authors" in text


def test_every_reason_for_leaving_something_out_is_counted(harvested):
    _, manifest, printed = harvested
    classes = manifest["dropped"]["lattice class"]
    assert classes == {
        "computes the same as another": 1,
        "is random": 1,
        "keeps a state": 1,
        "returns its input": 1,
        "ignores an input": 1,
        "an argument without a usual value": 1,
        "needs the library numpy": 1,
        "a name that its module does not define": 1,
        "ends its process": 1,
        "takes too long": 1,
    }
    assert "needs another library than torch" in printed


def test_each_problem_runs_alone_and_depends_on_its_inputs_at_its_small_sizes(harvested):
    out, manifest, _ = harvested
    problems = problems_in(out)
    assert len(problems) == len(manifest["problems"])
    for problem in problems:
        assert problem.cpu_constants.keys() == problem.constants.keys()
        assert "lattice" not in problem.source.partition("import torch")[2]
        small = resize(problem, problem.cpu_constants)
        module = ProblemModule(small.source, small.id)
        model = module.construct(module.arguments())
        with torch.no_grad():
            first, second = model(*module.inputs()), model(*module.inputs())
        assert first.is_floating_point()
        assert not torch.allclose(first, second)


def test_what_a_problem_has_no_use_for_is_gone(harvested):
    out, manifest, _ = harvested
    [file, *_] = [
        row["file"] for row in manifest["problems"] if "GatedNorm" in row["file"] and row["form"] == "class"
    ]
    text = (out / file).read_text()
    assert '"""GatedNorm normalises rows and gates them."""' in text
    assert "drop: float=0.0" in text
    assert "self.pool = to_pair(pool or 1)" in text
    for word in ("logger", "_register", "raise", "is_scripting", "extra_repr", "numpy"):
        assert word not in text


def test_a_configuration_becomes_plain_arguments(harvested):
    out, manifest, _ = harvested
    [file, *_] = [
        row["file"] for row in manifest["problems"] if "Configured" in row["file"] and row["form"] == "class"
    ]
    text = (out / file).read_text()
    assert "def __init__(self, hidden_size, intermediate_size):" in text
    assert "return [HIDDEN_SIZE, INTERMEDIATE_SIZE]" in text


def test_the_first_of_several_outputs_is_taken(harvested):
    out, manifest, _ = harvested
    [file, *_] = [row["file"] for row in manifest["problems"] if "lattice_Pair" in row["file"]]
    assert "return self.layer(x)[0]" in (out / file).read_text()


def test_a_mean_has_inputs_of_a_drawn_scale(harvested):
    out, manifest, _ = harvested
    [file, *_] = [row["file"] for row in manifest["problems"] if "squared_error" in row["file"]]
    assert "torch.rand(()) * torch.randn(" in (out / file).read_text()


def test_a_definition_is_in_one_split_with_everything_made_of_it(harvested):
    _, manifest, _ = harvested
    splits: dict[str, set[str]] = {}
    for row in manifest["problems"]:
        assert row["file"].startswith(f"{row['split']}/")
        for name in row["qualified_names"]:
            splits.setdefault(name, set()).add(row["split"])
    assert all(len(found) == 1 for found in splits.values())


@pytest.mark.parametrize("package", ["copyleft", "mixed_terms"])
def test_a_package_without_a_permissive_licence_is_refused(site, tmp_path, package, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(site))
    assert run(["harvest", str(tmp_path / "out"), "--packages", package]) == 2
    assert "states no permissive licence" in capsys.readouterr().err


def test_packages_that_cannot_be_read_are_reported_and_others_harvested(harvested):
    _, manifest, printed = harvested
    assert {row["package"] for row in manifest["problems"]} == {"lattice"}
    assert "no permissive licence" in next(iter(manifest["dropped"]["copyleft"]))
    assert "no package absent is installed here" in next(iter(manifest["dropped"]["absent"]))
    assert "copyleft" in printed and "absent" in printed


def test_nothing_of_a_package_is_imported(site, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    (site / "lattice" / "poison.py").write_text("raise SystemExit('imported')\n")
    library = Library(find_package("lattice"))
    assert {"lattice.layers", "lattice.ops", "lattice.poison"} <= set(library.names())
    assert all(library.module(name) is not None for name in library.names())


class About(dict):
    """Metadata with one value a key."""

    def get_all(self, name):
        return [self[name]] if name in self else None


@pytest.mark.parametrize(
    ("key", "text", "licence"),
    [
        ("License-Expression", "Apache-2.0", "Apache-2.0"),
        ("License-Expression", "MIT OR Apache-2.0", "MIT AND Apache-2.0"),
        ("License-Expression", "MIT AND GPL-3.0-only", None),
        ("Classifier", "License :: OSI Approved :: BSD License", "BSD"),
        ("Classifier", "License :: OSI Approved :: GNU Affero General Public License v3", None),
        ("License", "Apache 2.0 License", "Apache-2.0"),
        ("License", "BSD-3-Clause", "BSD"),
        ("License", "CC-BY-NC-4.0", None),
        ("License", "", None),
        ("Summary", "MIT", None),
    ],
)
def test_licences_as_metadata_spell_them(key, text, licence):
    assert permissive_licence(About({key: text})) == licence


@pytest.mark.exhaustive
def test_an_ingest_answers_the_training_problems_of_a_package(dojo, harvested, tmp_path):
    settings = ["sources=[package:lattice]", "decontaminate_against=[]", f"root={tmp_path}", "run=packages"]
    done = dojo("ingest", *settings)
    assert done.returncode == 0, done.stderr
    exemplars = load_snapshot(Store(str(tmp_path / "packages" / "snapshot")))
    held_out = {row["qualified_names"][0] for row in harvested[1]["problems"] if row["split"] == "held_out"}
    assert exemplars
    for exemplar in exemplars:
        assert (exemplar.source, exemplar.licence) == ("package-lattice", "MIT")
        assert exemplar.source_revision.startswith("lattice 1.2 ")
        assert exemplar.verified is Verdict.CORRECT and "@triton.jit" in exemplar.kernel_code
        assert not any(f"# From {name} " in exemplar.reference_code for name in held_out)
