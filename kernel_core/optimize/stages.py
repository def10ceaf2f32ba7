"""Stages of an optimisation: profile, problems, confirmed winners, whole model. Each goes on where it ended.

profile.json       times and floors of every submodule and region
parts.json         submodules to try; problems/ has each as a file in KernelBench's format
confirmed/         a file a part: verdicts, winner, evidence
whole.json         outputs and times of the whole module with the kernels in place
library/           the importable package of kernels that stayed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernel_core.batches import Batch, EachBatch, in_order
from kernel_core.errors import ConfigError
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.gym.contract.requests import Gym
from kernel_core.optimize import MOST_PARTS
from kernel_core.optimize.authors import Author
from kernel_core.optimize.library import PACKAGE, kernel_name, write_library
from kernel_core.optimize.part import Part, problem_of, recorded_calls
from kernel_core.optimize.profile import Profile, ProfileRow, profile
from kernel_core.optimize.search import Confirmed, search
from kernel_core.optimize.tape import Unwritable
from kernel_core.optimize.target import Target
from kernel_core.optimize.whole import Whole, choose_places, prove
from kernel_core.optimize.write import write_part
from kernel_core.progress import Progress, silent
from kernel_core.records import Record
from kernel_core.store import Store

LEAST_GAIN = 0.01
"""Share of the whole module's predicted time that a part may save at most, over all its places."""


class Parts(Record):
    """Parts to try, the largest bound first, and submodules that are none."""

    parts: tuple[Part, ...]
    left_out: dict[str, str]
    """Path to the reason."""

    def rows(self, whole: ProfileRow) -> list[dict[str, object]]:
        """Return a row a part with its predicted bounds, for a table."""
        return [
            {
                "part": part.problem.name,
                "places": len(part.paths),
                "predicted ms": f"{part.predicted_ms:.3g}",
                "saves at most": f"{part.gain_ms / part.predicted_ms:.1%}",
                "of the whole, all places": f"{part.gain_ms * len(part.paths) / whole.predicted_ms:.1%}",
                "first place": part.paths[0] or "(whole)",
            }
            for part in self.parts
        ]


def profiled(target: Target, device: str, gpu: str, store: Store) -> Profile:
    """Return the target's profile, made once."""
    if not store.exists("profile.json"):
        made = profile(target, device, gpu)
        store.write("profile.json", made.model_dump_json(indent=1).encode())
    return Profile.model_validate(store.read_json("profile.json"))


def parts_of(
    target: Target, rows: Profile, store: Store, progress: Progress = silent, most: int = MOST_PARTS
) -> Parts:
    """Return the parts worth trying, made once, with a problem file each. Raises ConfigError without any."""
    if not store.exists("parts.json"):
        parts = find_parts(target, rows, progress, most)
        for part in parts.parts:
            store.write(f"problems/{part.problem.name}.py", part.problem.source.encode())
        store.write("parts.json", parts.model_dump_json(indent=1).encode())
        torch.cuda.empty_cache()  # judges in other processes need the memory of the recorded calls
    parts = Parts.model_validate(store.read_json("parts.json"))
    if not parts.parts:
        reasons = "; ".join(f"{path or 'the whole'}: {why}" for path, why in list(parts.left_out.items())[:3])
        raise ConfigError(
            f"no submodule of {target.name} can be tried"
            + (f" ({reasons})" if reasons else ": eager mode is near the floor of each")
        )
    return parts


def find_parts(target: Target, rows: Profile, progress: Progress = silent, most: int = MOST_PARTS) -> Parts:
    """Write each submodule of enough gain as a problem; equal texts are one part with several places."""
    modules = dict(target.module.named_modules())
    promising = _promising(rows, modules)
    calls = recorded_calls(target, [row.path for row in promising])
    places: defaultdict[str, list[ProfileRow]] = defaultdict(list)
    made: dict[str, Part] = {}
    left_out: dict[str, str] = {}
    for done, row in enumerate(promising, start=1):
        try:
            text, contract = write_part(modules[row.path], calls[row.path])
        except Unwritable as refused:
            left_out[row.path] = str(refused)
        else:
            places[text].append(row)
            problem = problem_of(text, row.kind)
            made.setdefault(
                text,
                Part(
                    problem=problem,
                    contract=contract,
                    paths=(),
                    kind=row.kind,
                    predicted_ms=row.predicted_ms,
                    gain_ms=row.gain_ms,
                ),
            )
        progress("problems", done, len(promising))
    parts = [
        part.model_copy(update={"paths": tuple(row.path for row in places[text])})
        for text, part in made.items()
    ]
    least_ms = LEAST_GAIN * rows.whole.predicted_ms
    parts = [part for part in parts if part.gain_ms * len(part.paths) >= least_ms]
    parts.sort(key=lambda part: -part.gain_ms * len(part.paths))
    return Parts(parts=tuple(parts[:most]), left_out=left_out)


def _promising(rows: Profile, modules: dict[str, nn.Module]) -> list[ProfileRow]:
    """Return submodules of classes that could gain enough, without those that only pass on to one child."""
    alike: defaultdict[tuple[str, float], float] = defaultdict(float)
    by_path = {row.path: row for row in rows.rows if not row.is_region}
    for row in by_path.values():
        alike[row.kind, round(row.predicted_ms, 6)] += row.gain_ms
    least_ms = LEAST_GAIN * rows.whole.predicted_ms

    def passes_on(row: ProfileRow) -> bool:
        prefix = f"{row.path}." if row.path else ""
        children = [by_path.get(prefix + name) for name, _ in modules[row.path].named_children()]
        return any(child is not None and child.launches == row.launches for child in children)

    return [
        row
        for row in by_path.values()
        if alike[row.kind, round(row.predicted_ms, 6)] >= least_ms and row.gain_ms > 0 and not passes_on(row)
    ]


def confirmed(
    parts: Sequence[Part],
    authors: Sequence[Author],
    gym: Gym,
    kind: SpeedKind,
    seed: int,
    store: Store,
    progress: Progress = silent,
    each: EachBatch = in_order,
) -> list[Confirmed]:
    """Return what the search finds for each part. Parts that have a file are read, not searched again."""
    names = [f"confirmed/{part.problem.name}.json" for part in parts]

    def work(batch: Batch) -> str:
        outcome = search(parts[batch.start], authors, gym, kind, seed)
        store.write(names[batch.start], outcome.model_dump_json(indent=1).encode())
        progress("winners", sum(map(store.exists, names)), len(names))
        return outcome.in_words(kind)

    left = [
        Batch(label="parts", start=index, end=index + 1, total=len(names))
        for index, name in enumerate(names)
        if not store.exists(name)
    ]
    each(left, work, at_once=True)
    return read_confirmed(store)


def read_confirmed(store: Store) -> list[Confirmed]:
    """Return what was found for each part, in the parts' order."""
    parts = Parts.model_validate(store.read_json("parts.json")).parts
    names = [f"confirmed/{part.problem.name}.json" for part in parts]
    return [Confirmed.model_validate(store.read_json(name)) for name in names]


def whole_model(
    target: Target, spec: str, rows: Profile, winners: Sequence[Confirmed], device: str, store: Store
) -> Whole:
    """Return the whole module with the winners that help it, made once; the library has these alone."""
    if not store.exists("whole.json"):
        folder = Path(store.path(PACKAGE))
        places = choose_places(winners)
        report: dict[str, Any] = {"names": [], "taken_out": {}, "error": None}
        if places or device == "cuda":
            write_library(folder, target, winners, places, device)
            report = prove(spec, folder, places, device)
        left = {kernel_name(winner): winner.why_no_place for winner in winners}
        report["taken_out"] |= {name: why for name, why in left.items() if name not in places}
        stayed = {name: tuple(places[name]) for name in report.pop("names")}
        table = write_library(folder, target, winners, stayed, device)
        saved_ms = sum(len(stayed.get(kernel_name(winner), ())) * winner.saved_ms for winner in winners)
        made = Whole(
            **report,
            places=stayed,
            device=device,
            table=tuple(table),
            predicted_eager_ms=rows.whole.predicted_ms,
            predicted_kernels_ms=rows.whole.predicted_ms - saved_ms if device == "cpu" else None,
        )
        store.write_json("figures.json", made.rows())
        store.write("whole.json", made.model_dump_json(indent=1).encode())
    return Whole.model_validate(store.read_json("whole.json"))
