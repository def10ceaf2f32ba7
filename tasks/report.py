"""What a person sees of a stage afterwards: tables and pages of its results, with links to the files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kernel_core.config import PipelineConfig
from kernel_core.report.conditions import conditions_in_words, conditions_of, diagnosis_of, lineage_of
from kernel_core.runs.naming import AFTER, BEFORE, WINNERS
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import flat
from tasks.artifacts import (
    MAX_ROWS,
    LivePage,
    artifact_key,
    code_block,
    link,
    link_to,
    page,
    picture,
    publish,
    table,
    tables,
)
from tasks.faults import retried_task

log = logging.getLogger(__name__)


@retried_task("report corpus", "report")
def report_corpus(run: Run) -> None:
    """Counts of what was kept and dropped, and why."""
    store = run.store.child("snapshot")
    report = store.read_json("report.json")
    counts = {name: value for name, value in report.items() if not isinstance(value, list)}
    sections = {name: rows for name, rows in report.items() if isinstance(rows, list)}
    page(key_of(run, "corpus"), "Snapshot", store, {"counts": what_and_value(counts), **sections})


@retried_task("report index", "report")
def report_index(run: Run) -> None:
    """The index's embedder and size."""
    store = run.store.child("index")
    meta = store.open_sealed("index", verify=False).meta
    rows = what_and_value(meta)
    table(key_of(run, "index"), rows, f"The index in {store.path()}.")


@retried_task("report scorecard", "report")
def report_scorecard(run: Run, name: str) -> None:
    """The headline figures with their plot, one row a problem, and each problem's best answer."""
    from kernel_core.evaluation.evidence import best_answers, extremes
    from kernel_core.evaluation.kinds import baseline_rows, kind_rows
    from kernel_core.evaluation.scorecard import headline_rows, load_scorecard
    from kernel_core.evaluation.tables import measured_in_words, problem_rows, work_rows

    store = run.store.child(name)
    card, conditions = load_scorecard(store), conditions_of(run, name)
    key, title = key_of(run, name), f"Scorecard of {card.conditions.policy_version}"
    best, worst = extremes(store)
    shown = {"Best": best, "Worst": worst, "Best answer to every problem": best_answers(store)}
    code = link_to(f"{key}-code", "code and evidence")
    blocks = [f"# Answers of {card.conditions.policy_version}"]
    for which, answers in shown.items():
        blocks.append(f"## {which} ({len(answers)})")
        for answer in answers:
            blocks += [f"### {answer.in_words()}", code_block(answer.report_text), code_block(answer.code)]
    publish(f"{key}-code", blocks, store, f"Best, worst and every problem's best answer; {conditions}.")
    rows = [{"problem_id": row["problem_id"], "answer": code} | row for row in problem_rows(card)]
    told = f"One row a problem; {conditions}; all turns: {store.path('evaluations.parquet')}"
    table(f"{key}-problems", rows, told)
    found = diagnosis_of(run, name)
    lead = [
        f"Conditions: {conditions}; {measured_in_words(card)}.",
        *([f"**Next step:** {found.next_step}"] if found.next_step else []),
    ]
    lead += [f"Every problem: {link_to(f'{key}-problems', 'table')}, {code}."]
    lead.append(picture("fast_p", store.read("fast_p.png")))
    work = work_rows(card)
    sections = {"headline": headline_rows(card), "precision, tolerance, own work": work}
    sections |= {"what became of the answers": found.rows()}
    if by_kind := kind_rows(card.problems):
        sections |= {"KernelBench by kind": by_kind, "KernelBench by baseline": baseline_rows(card.problems)}
    if card.conditions.taken_out:
        sections["judges taken out"] = [{"judge": one} for one in card.conditions.taken_out]
    if card.conditions.left_out:
        sections["problems left out"] = [{"pays for nothing": one} for one in card.conditions.left_out]
    page(f"{key}-summary", title, store, sections, lead=lead, description=f"{title}; {conditions}.")


@retried_task("report winners", "report")
def report_winners(run: Run, name: str) -> None:
    """Each problem's winner with its code, or why it has none."""
    from kernel_core.evaluation.best_of_n import load_selection

    store = run.store.child(name)
    selection, conditions = load_selection(store), conditions_of(run, name)
    told = f"Verified winners; {conditions}; kernels and evidence: {store.path('winners')}"
    table(key_of(run, name), selection.rows(), told)
    blocks = [
        f"# Winners for {len(selection.winners)} of {len(selection.problems)} problems",
        f"Conditions: {conditions}.",
    ]
    none = Counter(one.why_none for one in selection.problems if one.winner is None)
    blocks += [f"Without a winner, {count}: {why}." for why, count in none.most_common(3)]
    for selected in selection.winners:
        winner = selected.winner
        assert winner is not None, "a winner without its evidence"
        speedup = f", {selection.speed_kind} speed-up {winner.speedup:.2f}" if winner.speedup else ""
        trials = sum(evaluation.trials_passed for evaluation in winner.again)
        blocks.append(f"## {selected.problem_id}{speedup}")
        blocks.append(f"Passed {trials} trials on draws it had not seen.")
        blocks.append(code_block(winner.ranked.candidate.source))
    publish(f"{key_of(run, name)}-code", blocks, store, f"Code of the winners; {conditions}.")


@retried_task("report training", "report")
def report_training(run: Run, *, has_more: bool) -> None:
    """The page of curves, drawn again if the training has more to show than when it was drawn last, and one
    row a step: the newest ones, if there are more than a table may hold."""
    from kernel_core.report.run_page import REPORT, write_report

    if has_more or not run.store.exists(REPORT):
        write_report(run.store, is_trained=True)
    log.info("curves and answers: %s", run.store.path(REPORT))
    link(key_of(run, "report"), run.store, REPORT, f"Curves and answers of {run.name} as a page.")
    rows = list(run.store.lines("metrics.jsonl"))[-MAX_ROWS:]
    table(key_of(run, "metrics"), rows, f"All steps: {run.store.path('metrics.jsonl')}")


def show_curriculum(run: Run, live: LivePage) -> None:
    """While it runs: learning curves, the stages so far, and the newest step's figures."""
    from kernel_core.report.training import curves_png
    from kernel_core.reward.curriculum import stage_spans

    lines = list(run.store.lines("metrics.jsonl"))
    spans = [span.model_dump() for span in stage_spans(lines)]
    newest = what_and_value(_with_kinds(lines[-1])) if lines else []
    curves = [picture("learning curves", curves_png(lines))] if lines else []
    live.show([f"# Training of {run.name}", *curves, *tables({"stages": spans, "newest step": newest})])


def show_stage(run: Run, stage: str, from_step: int) -> None:
    """The steps that a training just spent in one stage of its curriculum: one row each."""
    shown = ("step", "reward/mean", "probe/", "verdict/")
    rows = [
        {name: value for name, value in _with_kinds(line).items() if name.startswith(shown)}
        for line in run.store.lines("metrics.jsonl")
        if line.get("step", 0) >= from_step
    ]
    told = f"Steps of stage {stage} of run {run.name}; all steps: {run.store.path('metrics.jsonl')}"
    table(key_of(run, f"stage-{stage}"), rows, told)


def _with_kinds(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `metrics.jsonl` with the kind of speed in each name, because a name is read alone."""
    from kernel_core.evaluation.metrics import is_of_speed

    kind = metrics.get("speedups", "")
    return {
        f"{name} ({kind})" if kind and is_of_speed(name) else name: value for name, value in metrics.items()
    }


@retried_task("report pipeline", "report")
def report_pipeline(run: Run, config: PipelineConfig) -> None:
    """Publish the run in ten lines, then figures by group of problems, winners and lineage."""
    from kernel_core.evaluation.best_of_n import load_selection
    from kernel_core.evaluation.scorecard import compare, load_scorecard
    from kernel_core.report.run_verdict import arms_of, group_tables, verdict_lines

    change = compare(load_scorecard(run.store.child(BEFORE)), load_scorecard(run.store.child(AFTER)))
    found, arms = diagnosis_of(run, AFTER), arms_of(run, tuple(config.evaluate.groups))
    sections = {
        **group_tables(arms),
        "Before and after RL": change.rows(),
        "What became of the answers after training": found.rows(),
        "Winners": load_selection(run.store.child(WINNERS)).rows(),
        "What each stage made, of what": lineage_of(run),
    }
    lead = ["\n".join(f"- {line}" for line in verdict_lines(run, arms))]
    lead += [f"**Next step:** {found.next_step}"] if found.next_step else []
    lead.append(f"Before and after: {conditions_of(run, AFTER)}. Winners: {conditions_of(run, WINNERS)}.")
    lead.append(picture("fast_p", run.store.child(AFTER).read("fast_p.png")))
    page(key_of(run, "summary"), f"Run {run.name}", run.store, sections, lead=lead)


def key_of(run: Run, words: str) -> str:
    """The key of an artifact, which no other run's artifact has."""
    return artifact_key(f"{run.name}-{words}")


def report_settings(run: Run, flow: str, name: str, parameters: Mapping[str, Any]) -> None:
    """Publish what a flow run works with once preset, form and kind of model are laid over one another."""
    config = parameters.get("config") or {}
    words = [f"model {config['policy']['model']}"] if "policy" in config else []
    if "problems" in config and "rollout" in config and {"samples_per_problem", "n"} & config.keys():
        words.append(conditions_in_words(config))
    description = f"Settings of {flow}" + (f": {'; '.join(words)}" if words else "") + "."
    table(key_of(run, f"{name}-settings"), what_and_value(parameters), description)


def what_and_value(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nested settings or counts as rows."""
    return [
        {"what": name, "value": value if isinstance(value, int | float) else str(value)}
        for name, value in flat(values).items()
    ]
