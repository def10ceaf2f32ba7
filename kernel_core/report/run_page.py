"""Report of a run as one self-contained page, `report.html`.

It has what the run has: before and after, every scorecard with all answers, winners, the training, settings.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_core.errors import redacted
from kernel_core.evaluation.best_of_n import load_selection
from kernel_core.evaluation.diagnosis import answer_rows
from kernel_core.evaluation.evidence import Shown, extremes
from kernel_core.evaluation.scorecard import compare, headline_rows, load_scorecard
from kernel_core.evaluation.tables import family_rows, measured_in_words, problem_rows, work_rows
from kernel_core.report.conditions import conditions_of, diagnosis_of, lineage_of
from kernel_core.report.html_page import Code, code_block, document, paragraph, table
from kernel_core.report.training import training_sections
from kernel_core.runs.naming import AFTER, BEFORE
from kernel_core.runs.run_folder import Run, stamp
from kernel_core.runs.stage_record import flat
from kernel_core.store import Store

REPORT = "report.html"
_SIZES = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "vocab_size": "vocab_size",
}
"""Settings of a `new` policy, and their names in a model's `config.json`."""
MOST_ANSWERS = 5000
"""Answers of one evaluation that the page has; `evaluations.parquet` has all."""


def write_report(store: Store, *, is_trained: bool = False) -> str:
    """Write `report.html` of the run in this folder and give its name.

    With `is_trained` the last task of a training writes it: no work of that flow is left.
    """
    root, _, name = store.root.rstrip("/").rpartition("/")
    run = Run(root, name)
    sections: dict[str, list[str]] = {"": _head(run, is_trained)}
    names = [folder for folder in store.names() if store.exists(f"{folder}/manifest.json")]
    scored = [folder for folder in names if store.exists(f"{folder}/scorecard.json")]
    if {BEFORE, AFTER} <= set(scored):
        sections["before and after"] = _change(run, BEFORE, AFTER)
    for folder in scored:
        sections[folder] = _scorecard(run, folder)
    for folder in names:
        if store.exists(f"{folder}/winners/report.json"):
            sections[folder] = _winners(run, folder)
    if store.exists("metrics.jsonl") or not scored:
        sections |= training_sections(store)
    if stages := lineage_of(run):
        sections["what each stage made, of what"] = [table(stages)]
    if store.exists("config.json"):
        settings = settings_in_force(flat(run.command()["parameters"]))
        rows = [{"setting": key, "value": str(value)} for key, value in settings.items()]
        sections["settings"] = [table(rows, full=True)]
    store.write(REPORT, redacted(document(name, sections)).encode())
    return REPORT


def settings_in_force(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by key, with the sizes of a model from its folder: those of `new` did not decide there."""
    shown = dict(settings)
    for key, model in settings.items():
        if not key.endswith("policy.model") or model == "new":
            continue
        group = key.removesuffix("model")
        for name in _SIZES:
            shown.pop(group + name, None)
        file = Path(str(model)) / "config.json"
        model_config = json.loads(file.read_text()) if file.is_file() else {}
        shown |= {
            group + name: model_config[theirs] for name, theirs in _SIZES.items() if theirs in model_config
        }
    return shown


def _head(run: Run, is_trained: bool) -> list[str]:
    state = run.state()
    if state is None:
        return []
    condition: str = state.condition
    if condition == "running":
        is_last = is_trained and state.flow == "train"
        condition = "finished" if is_last else f"running when this page was written, {stamp()[:19]}"
    message = f": {state.message}" if state.message else ""
    return [paragraph(f"{state.flow}, {condition}{message}; begun {state.started_at[:19]}")]


def _change(run: Run, before: str, after: str) -> list[str]:
    change = compare(load_scorecard(run.store.child(before)), load_scorecard(run.store.child(after)))
    summary = f"{len(change.gained)} problems gained, {len(change.lost)} lost. {conditions_of(run, after)}"
    return [paragraph(summary), table(change.rows())]


def _scorecard(run: Run, folder: str) -> list[str]:
    store = run.store.child(folder)
    card, diagnosis = load_scorecard(store), diagnosis_of(run, folder)
    picture = base64.b64encode(store.read("fast_p.png")).decode()
    best, worst = extremes(store)
    kind = card.headline
    return [
        paragraph(f"Scorecard of {card.conditions.policy_version}. {conditions_of(run, folder)}"),
        paragraph(measured_in_words(card)),
        *([paragraph(f"Next step: {diagnosis.next_step}")] if diagnosis.next_step else []),
        paragraph("low and high: 95 % interval"),
        table(headline_rows(card)),
        f"<img alt='fast_p and families' src='data:image/png;base64,{picture}'>",
        "<h3>precision, tolerance and own work of last turns</h3>",
        table(work_rows(card)),
        "<h3>what became of the answers</h3>",
        table(diagnosis.rows()),
        "<h3>by family</h3>",
        table(family_rows(card), full=True),
        f"<h3>by problem ({kind})</h3>",
        table(problem_rows(card), full=True),
        "<h3>all answers</h3>",
        table(_answers(store), full=True),
        *_shown("best", best),
        *_shown("worst", worst),
    ]


def _answers(store: Store) -> list[dict[str, Any]]:
    return [
        {
            "problem": row["problem_id"],
            "sample": row["sample"],
            "turn": row["turn"],
            "verdict": row["verdict"],
            "speed-up": row["speedup"] if row["speedup"] is not None else row["predicted_speedup"],
            "of": row["predicted_gpu"] if row["speedup"] is None else "measured",
            "tokens": row["num_tokens"] or "unknown",
            "ended": row["finish_reason"],
            "the judge": Code(row["feedback"] or ""),
            "answer": Code(row["code"] or row.get("answer") or ""),
        }
        for row in answer_rows(store)[:MOST_ANSWERS]
    ]


def _shown(which: str, answers: Sequence[Shown]) -> list[str]:
    blocks = [f"<h3>the {len(answers)} {which}</h3>"]
    for answer in answers:
        blocks += [paragraph(answer.in_words()), code_block(answer.report_text), code_block(answer.code)]
    return blocks


def _winners(run: Run, folder: str) -> list[str]:
    selection = load_selection(run.store.child(folder))
    rows = [
        row | {"kernel": Code(result.winner.ranked.candidate.source if result.winner is not None else "")}
        for row, result in zip(selection.rows(), selection.problems, strict=True)
    ]
    count = f"Winners for {len(selection.winners)} of {len(selection.problems)} problems."
    return [paragraph(f"{count} {conditions_of(run, folder)}"), table(rows, full=True)]
