"""Table of the policies that runs taught by imitation: how much was taught, and what each can do since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernel_core.dialogue.answers import KeptAnswers
from kernel_core.evaluation.metrics import Scorecard
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.evaluation.statistics import in_per_cent
from kernel_core.runs.run_folder import Run

Row = dict[str, Any]


def taught_rows(runs: Sequence[Run]) -> list[Row]:
    """Return a row for each taught policy and each scorecard of it, in the order of the teaching.

    A scorecard belongs to the policy with the version that it names. A policy without one has a row without
    figures. `minutes` are those of all stages of the policy, such as `round-1-answers` of `round-1`.
    """
    rows = [row for run in runs for row in _rows_of(run)]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def sampled_entropy(answers: KeptAnswers) -> float | None:
    """Return the mean of -log p over all tokens that were drawn, in nats; None where it is not known."""
    known = [answer for answer in answers.in_order() if answer.logprob is not None and answer.num_tokens]
    num_tokens = sum(answer.num_tokens for answer in known)
    return -sum(answer.logprob or 0.0 for answer in known) / num_tokens if num_tokens else None


def _rows_of(run: Run) -> Iterator[Row]:
    cards = {name: load_scorecard(run.store.child(name)) for name in _sealed_with(run, "scorecard.json")}
    taught = [(name, run.store.child(name)) for name in _sealed_with(run, "report.json", "policy.json")]
    for name, store in sorted(taught, key=lambda named: _begun_at(run, named[0])):
        report, version = store.read_json("report.json"), store.read_json("policy.json")["version"]
        row = {
            "run": run.name,
            "taught": name,
            "conversations": report["num_conversations"],
            "updates": report["steps"],
            "held-back loss": report["loss"],
            "minutes": round(_seconds(run, name) / 60, 1),
        }
        scored = {folder: card for folder, card in cards.items() if card.conditions.policy_version == version}
        yield from (row | _figures(run, folder, card) for folder, card in scored.items())
        if not scored:
            yield row


def _figures(run: Run, folder: str, card: Scorecard) -> Row:
    entropy = sampled_entropy(KeptAnswers(run.store.child(folder)))
    chances = {f"pass@{k}": in_per_cent(estimate) for k, estimate in card.last.pass_at_k.items()}
    return {"scorecard": folder, "problems": len(card.problems), "entropy": entropy} | chances


def _sealed_with(run: Run, *files: str) -> list[str]:
    """Return the names of the run's sealed folders that have these files."""
    stores = {name: run.store.child(name) for name in run.store.names()}
    return [name for name, store in stores.items() if store.sealed() and all(map(store.exists, files))]


def _begun_at(run: Run, folder: str) -> str:
    """Return the time at which the stage of a taught policy was begun."""
    record = run.stage(_stage_name(folder))
    return record.begun_at if record is not None else ""


def _seconds(run: Run, folder: str) -> float:
    name = _stage_name(folder)
    records = (
        record for record in run.stages() if record.stage == name or record.stage.startswith(f"{name}-")
    )
    return sum(record.seconds or 0.0 for record in records)


def _stage_name(folder: str) -> str:
    return folder.replace("_", "-")
