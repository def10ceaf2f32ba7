"""The golden set: draws, verdicts, presets and judge code as they were recorded, and how they differ now.

    just golden [draws] [presets] [judge] [verdicts] [--only TEXT] [--write]

Prints a line for each entry that differs from `tests/golden/*.json`, and exits 1 if there is one. Without
names, all parts are compared; only `verdicts` takes minutes. `--write` records what there is now.
`--only` judges only the files with that text in their paths.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]
sys.path[:0] = [str(FOLDER.parent / "fixtures")]

DRAWS = 20
"""Problems that are drawn from each family, and from each split of a suite."""
SIDE_BY_SIDE = 16
UNDECIDING = frozenset({"pool"})
"""Rooms of the gym that only bring candidates to judges."""
ACKNOWLEDGE = """\
The code that decides verdicts differs from what tests/golden/judge.json records for this GYM_VERSION.
If a candidate could get another verdict or another predicted speed, raise GYM_VERSION in
kernel_core/gym/contract/version.py and add a line to docs/judge/versions.md. Else leave the version.
Then record the code with `just golden judge --write`, and commit the file with the change."""

Entries = dict[str, str]
"""A line of a golden file: what is recorded, by the name of a family, a file or a preset."""


def digest(texts: Iterable[str]) -> str:
    """Return the first ten hex digits of the SHA-256 of texts."""
    joined = "\0".join(texts)
    return hashlib.sha256(joined.encode()).hexdigest()[:10]


def draws(count: int = DRAWS) -> Entries:
    """Digest `count` draws of each family of each endless suite by grade, and of each split of a suite."""
    from kernel_core.problems.generators import ENDLESS_SUITES, generator_of

    splits = {
        f"{suite} {split}": _grades(generator_of(suite).draw(split, count, 0, ()))
        for suite in ENDLESS_SUITES
        for split in ("train", "validation", "held_out")
    }
    return dict(_families(count)) | splits


def _families(count: int) -> Iterator[tuple[str, str]]:
    from kernel_core.problems.generators import ENDLESS_SUITES, generator_of

    for suite in ENDLESS_SUITES:
        generator = generator_of(suite)
        for family in generator.families:
            split = "held_out" if family in generator.reserved else "train"
            yield f"{suite}/{family}", _grades(generator.draw(split, count, 0, (family,)))


def first_draws() -> Entries:
    """Digest the first draw of each family, which takes a second."""
    return {f"first of {name}": text for name, text in _families(1)}


def all_draws() -> Entries:
    """Digest the first draw and all draws."""
    return first_draws() | draws()


def _grades(drawn: Iterable[object]) -> str:
    """One digest for the problems, and for the kernels of each grade."""
    texts: dict[str, list[str]] = {}
    for made in drawn:
        texts.setdefault("problem", []).append(made.problem.model_dump_json())
        for kernel in made.kernels:
            texts.setdefault(kernel.grade, []).append(kernel.model_dump_json())
    return " ".join(f"{grade}={digest(parts)}" for grade, parts in texts.items())


def presets() -> Entries:
    """Digest the effective settings of each deployment of `prefect.yaml`, group by group."""
    from flows.presets import STAGES, build_parameters, preset
    from flows.presets import presets as presets_of

    return {
        f"{stage}/{name}": " ".join(_groups(build_parameters(stage, preset(stage, name))))
        for stage in STAGES
        for name in presets_of(stage)
    }


def _groups(parameters: Mapping[str, object]) -> Iterator[str]:
    """A digest for each group of settings, and one for the settings beside the groups."""
    from kernel_core.config import Config

    config = parameters["config"]
    dumped = config.model_dump(mode="json")
    groups = {name: dumped.pop(name) for name in list(dumped) if isinstance(getattr(config, name), Config)}
    beside = {name: value for name, value in parameters.items() if name != "config"}
    for name, value in {"settings": dumped, "parameters": beside, **groups}.items():
        text = json.dumps(value, sort_keys=True, default=str).replace(str(REPOSITORY), ".")
        yield f"{name}={digest([text])}"


def judge_code() -> Entries:
    """Digest each file of the gym that can decide a verdict; comments, docstrings and layout do not count."""
    from kernel_core.gym.contract.version import GYM_VERSION

    gym = REPOSITORY / "kernel_core" / "gym"
    files = [file for file in sorted(gym.rglob("*")) if file.suffix in (".py", ".cpp")]
    deciding = [file for file in files if file.relative_to(gym).parts[0] not in UNDECIDING]
    codes = {file.relative_to(gym).as_posix(): code_of(file.read_text(), file.suffix) for file in deciding}
    return {"GYM_VERSION": GYM_VERSION} | {name: digest([code]) for name, code in codes.items() if code}


def code_of(text: str, suffix: str) -> str:
    """Return a source without comments, docstrings and layout."""
    if suffix == ".cpp":
        return " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).split())
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list):
            node.body = [statement for statement in node.body if not _is_text(statement)]
    return ast.unparse(tree)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def verdicts(only: str = "") -> Entries:
    """Judge the files of `tests/exploits` on a CPU: the verdict and the rules of the findings of each.

    Files without `only` in their paths keep what is recorded.
    """
    from exploit_files import FILES, header_of, outcome_of, path_of, request_of

    from kernel_core.config import GymConfig
    from kernel_core.gym.pool.open_gym import open_gym

    chosen = [file for file in FILES.values() if only in path_of(file)]
    endless = [file for file in chosen if "deadline" in header_of(file)]
    ending = [file for file in chosen if file not in endless]
    entries = {name: text for name, text in recorded("verdicts").items() if only not in name}
    for files, config in (
        (ending, GymConfig(workers=2, deadline_s=120.0)),
        (endless, GymConfig(workers=3, deadline_s=1.5)),
    ):
        with open_gym(config) as gym:
            for start in range(0, len(files), SIDE_BY_SIDE):
                print(f"{start} of {len(files)} judged", file=sys.stderr)
                together = files[start : start + SIDE_BY_SIDE]
                evaluations = gym.judge([request_of(file) for file in together])
                for file, evaluation in zip(together, evaluations, strict=True):
                    entries[path_of(file)] = outcome_of(evaluation)
    return dict(sorted(entries.items()))


PARTS: dict[str, Callable[[], Entries]] = {
    "draws": all_draws,
    "presets": presets,
    "judge": judge_code,
    "verdicts": verdicts,
}


def recorded(part: str) -> Entries:
    """Return what a golden file records."""
    file = FOLDER / f"{part}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def write(part: str, entries: Entries) -> None:
    """Record entries, one a line, so that a diff of the file shows which changed."""
    (FOLDER / f"{part}.json").write_text(json.dumps(entries, indent=0, ensure_ascii=False) + "\n")


def differences(before: Entries, now: Entries) -> list[str]:
    """Return a line for each entry that differs, with the words of it that do."""
    lines = []
    for name in dict.fromkeys((*before, *now)):
        if name not in now or name not in before:
            lines.append(f"{name}: {'is gone' if name in before else 'is new'}")
        elif before[name] != now[name]:
            old, new = before[name].split(), now[name].split()
            gone, come = [word for word in old if word not in new], [word for word in new if word not in old]
            lines.append(f"{name}: {' '.join(gone) or 'nothing'} -> {' '.join(come) or 'nothing'}")
    return lines


def main() -> int:
    """Compare the parts that were asked for, or record them; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"{', '.join(PARTS)}; all by default"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="judge only files with TEXT in their paths"
    )
    parser.add_argument("--write", action="store_true", help="record what there is now")
    asked = parser.parse_args()
    changed = False
    for part in asked.parts or PARTS:
        now = verdicts(asked.only) if part == "verdicts" else PARTS[part]()
        lines = differences(recorded(part), now)
        print(f"{part}: {len(lines)} of {len(now)} differ", *lines, sep="\n  ", flush=True)
        if asked.write:
            write(part, now)
        elif lines and part == "judge":
            print(ACKNOWLEDGE)
        changed = changed or bool(lines)
    return int(changed and not asked.write)


if __name__ == "__main__":
    sys.exit(main())
