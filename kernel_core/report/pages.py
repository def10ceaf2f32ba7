"""Pages and tables of finished stages, published as artifacts under keys that begin with the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_core.config import CompareConfig, PipelineConfig
from kernel_core.report.conditions import conditions_in_words, conditions_of, diagnosis_of, lineage_of
from kernel_core.report.markdown import artifact_key, code_block, link_to, picture, tables
from kernel_core.runs.naming import AFTER, ARM_CARD, BEFORE, COMPARISON, WINNERS
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import flat
from kernel_core.store import Store


class Rows(NamedTuple):
    """Table with a key of its own."""

    key: str
    rows: Sequence[Mapping[str, Any]]
    description: str


class Page(NamedTuple):
    """Blocks of markdown about a folder."""

    key: str
    blocks: Sequence[str]
    store: Store
    description: str


def key_of(run: Run, words: str) -> str:
    """Return the key of an artifact, which no other run's artifact has."""
    return artifact_key(f"{run.name}-{words}")


def settings_rows(run: Run, flow: str, name: str, parameters: Mapping[str, Any]) -> Rows:
    """Return the settings of a flow run once preset, form and kind of model are laid over one another."""
    config = parameters.get("config") or {}
    words = [f"model {config['policy']['model']}"] if "policy" in config else []
    if "problems" in config and "rollout" in config and {"samples_per_problem", "n"} & config.keys():
        words.append(conditions_in_words(config))
    description = f"Settings of {flow}" + (f": {'; '.join(words)}" if words else "") + "."
    return Rows(key_of(run, f"{name}-settings"), what_and_value(parameters), description)


def what_and_value(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return nested settings or counts as rows."""
    return [
        {"what": name, "value": value if isinstance(value, int | float) else str(value)}
        for name, value in flat(values).items()
    ]


def corpus_pages(run: Run) -> Iterator[Page]:
    """Yield counts of rows that were kept and dropped, with reasons."""
    store = run.store.child("snapshot")
    report = store.read_json("report.json")
    counts = {name: value for name, value in report.items() if not isinstance(value, list)}
    sections = {name: rows for name, rows in report.items() if isinstance(rows, list)}
    blocks = ["# Snapshot", *tables({"counts": what_and_value(counts), **sections})]
    yield Page(key_of(run, "corpus"), blocks, store, "Snapshot.")


def index_pages(run: Run) -> Iterator[Rows]:
    """Yield the embedder and the size of the index."""
    store = run.store.child("index")
    meta = store.open_sealed("index", verify=False).meta
    yield Rows(key_of(run, "index"), what_and_value(meta), f"The index in {store.path()}.")


def scorecard_pages(run: Run, name: str) -> Iterator[Rows | Page]:
    """Yield the best and worst answers, one row a problem, and the headline figures with their plot."""
    from kernel_core.evaluation.evidence import best_answers, extremes
    from kernel_core.evaluation.scorecard import load_scorecard
    from kernel_core.evaluation.tables import measured_in_words, problem_rows

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
    about = f"Best, worst and every problem's best answer; {conditions}."
    yield Page(f"{key}-code", blocks, store, about)
    rows = [{"problem_id": row["problem_id"], "answer": code} | row for row in problem_rows(card)]
    about = f"One row a problem; {conditions}; all turns: {store.path('evaluations.parquet')}"
    yield Rows(f"{key}-problems", rows, about)
    diagnosis = diagnosis_of(run, name)
    blocks = [f"# {title}", f"Conditions: {conditions}; {measured_in_words(card)}."]
    blocks += _next_step(diagnosis.next_step)
    blocks += [f"Every problem: {link_to(f'{key}-problems', 'table')}, {code}."]
    blocks += [picture("fast_p", store.read("fast_p.png")), *tables(_card_sections(card, diagnosis.rows()))]
    yield Page(f"{key}-summary", blocks, store, f"{title}; {conditions}.")


def _card_sections(card: Any, outcomes: list[dict[str, Any]]) -> dict[str, Sequence[Mapping[str, Any]]]:
    from kernel_core.evaluation.kinds import baseline_rows, kind_rows
    from kernel_core.evaluation.scorecard import headline_rows
    from kernel_core.evaluation.tables import work_rows

    sections: dict[str, Sequence[Mapping[str, Any]]] = {
        "headline": headline_rows(card),
        "precision, tolerance, own work": work_rows(card),
        "what became of the answers": outcomes,
    }
    if by_kind := kind_rows(card.problems):
        sections |= {"KernelBench by kind": by_kind, "KernelBench by baseline": baseline_rows(card.problems)}
    if card.conditions.taken_out:
        sections["judges taken out"] = [{"judge": judge} for judge in card.conditions.taken_out]
    if card.conditions.left_out:
        sections["problems left out"] = [{"pays for nothing": name} for name in card.conditions.left_out]
    return sections


def winners_pages(run: Run, name: str) -> Iterator[Rows | Page]:
    """Yield each problem's winner with its code, or the reason for none."""
    from kernel_core.evaluation.best_of_n import load_selection

    store = run.store.child(name)
    selection, conditions = load_selection(store), conditions_of(run, name)
    about = f"Verified winners; {conditions}; kernels and evidence: {store.path('winners')}"
    yield Rows(key_of(run, name), selection.rows(), about)
    blocks = [
        f"# Winners for {len(selection.winners)} of {len(selection.problems)} problems",
        f"Conditions: {conditions}.",
    ]
    none = Counter(problem.why_none for problem in selection.problems if problem.winner is None)
    blocks += [f"Without a winner, {count}: {why}." for why, count in none.most_common(3)]
    for selected in selection.winners:
        winner = selected.winner
        assert winner is not None, "a winner without its evidence"
        speedup = f", {selection.speed_kind} speed-up {winner.speedup:.2f}" if winner.speedup else ""
        trials = sum(evaluation.trials_passed for evaluation in winner.again)
        blocks.append(f"## {selected.problem_id}{speedup}")
        blocks.append(f"Passed {trials} trials on draws it had not seen.")
        blocks.append(code_block(winner.ranked.candidate.source))
    yield Page(f"{key_of(run, name)}-code", blocks, store, f"Code of the winners; {conditions}.")


def pipeline_pages(run: Run, config: PipelineConfig) -> Iterator[Page]:
    """Yield the run in ten lines, then figures by group of problems, winners and lineage."""
    from kernel_core.evaluation.best_of_n import load_selection
    from kernel_core.evaluation.scorecard import compare, load_scorecard
    from kernel_core.report.run_verdict import arms_of, group_tables, learned_by, verdict_lines
    from kernel_core.report.taught import taught_rows

    change = compare(load_scorecard(run.store.child(BEFORE)), load_scorecard(run.store.child(AFTER)))
    diagnosis, arms = diagnosis_of(run, AFTER), arms_of(run, tuple(config.evaluate.groups))
    sections = {
        **group_tables(arms),
        **({"Policies that were taught": taught} if (taught := taught_rows([run])) else {}),
        f"Before and after {learned_by(run)}": change.rows(),
        "Outcomes of the answers after training": diagnosis.rows(),
        "Winners": load_selection(run.store.child(WINNERS)).rows(),
        "Outputs of each stage, and their inputs": lineage_of(run),
    }
    title = f"Run {run.name}"
    blocks = [f"# {title}", "\n".join(f"- {line}" for line in verdict_lines(run, arms))]
    blocks += _next_step(diagnosis.next_step)
    blocks.append(f"Before and after: {conditions_of(run, AFTER)}. Winners: {conditions_of(run, WINNERS)}.")
    blocks.append(picture("fast_p", run.store.child(AFTER).read("fast_p.png")))
    yield Page(key_of(run, "summary"), [*blocks, *tables(sections)], run.store, f"{title}.")


def comparison_pages(run: Run, config: CompareConfig) -> Iterator[Rows | Page]:
    """Yield the figures of each arm and their paired differences."""
    from kernel_core.evaluation.judged_rows import ANSWERS, DIFFERENCES, figure_tables, read_rows

    store, arm = run.store.child(COMPARISON), config.arms[0]
    figures = figure_tables(read_rows(store.path(ANSWERS)), config.methods[0])
    conditions = conditions_of(Run(run.root, f"{run.name}-{arm.name}"), ARM_CARD)
    title = f"{', '.join(config.methods)} with {len(config.seeds)} seeds"
    blocks = [
        f"# {title}",
        f"Conditions: {conditions}.",
        "Intervals are over problems, and over several seeds.",
    ]
    yield Page(key_of(run, "comparison"), [*blocks, *tables(figures)], store, f"{title}.")
    yield Rows(key_of(run, "differences"), figures.get(DIFFERENCES, ()), f"{title}; {conditions}.")


def night_pages(run: Run, watched: str) -> Iterator[Rows | Page]:
    """Yield the nights of a watched run, newest first, and the last one beside the night before.

    The trend of `evaluation.nightly.write_trend` is in the run already.
    """
    from kernel_core.evaluation.nightly import (
        finished_nights,
        last_change,
        regressions,
        trend_file,
        trend_rows,
    )

    nights = finished_nights(run, watched)
    rows, change = trend_rows(nights), last_change(nights)
    key, conditions = artifact_key(f"nightly-{watched}"), conditions_of(run, nights[-1].folder)
    missed, file = sum(row["missed_before"] for row in rows), run.store.path(trend_file(watched, "parquet"))
    about = f"{len(rows)} nights of {watched}, {missed} missed; last night: {conditions}; all figures: {file}"
    yield Rows(key, [row | {"regressed": "; ".join(row["regressed"])} for row in rows[::-1]], about)
    worse = regressions(change) if change is not None else ()
    verdict = f"**Regressed:** {'; '.join(worse)}" if worse else "Not clearly worse than the night before."
    if change is None:
        verdict = "Nothing to compare with: the first night on these problems."
    title = f"{watched}, {nights[-1].name}"
    plot = picture("trend", run.store.read(trend_file(watched, "png")))
    blocks = [f"# {title}", verdict, f"Conditions: {conditions}.", plot]
    blocks += tables({"Change since the night before": change.rows() if change is not None else []})
    yield Page(f"{key}-change", blocks, run.store.child(nights[-1].folder), f"{title}.")


def gate_page(
    name: Run, verdict: str, candidate: str, before: Store, after: Store, rows: Sequence[Mapping[str, Any]]
) -> Page:
    """Return the page of a promotion check: its verdict, and the scorecards before and after."""
    title = f"Gate of {name.name}"
    blocks = [f"# {title}", f"**{verdict}**"]
    blocks += [f"Candidate: `{candidate}`. The one to beat: `{before.root}`."]
    blocks += [picture("fast_p", after.read("fast_p.png")), *tables({"Before and after": rows})]
    return Page(key_of(name, "gate"), blocks, name.store, f"{title}.")


def _next_step(advice: str) -> list[str]:
    return [f"**Next step:** {advice}"] if advice else []


def curriculum_blocks(run: Run) -> list[str]:
    """Return learning curves, the stages so far, and the newest step's figures."""
    from kernel_core.report.training import curves_png
    from kernel_core.reward.curriculum import stage_spans

    lines = list(run.store.lines("metrics.jsonl"))
    spans = [span.model_dump() for span in stage_spans(lines)]
    newest = what_and_value(_with_kinds(lines[-1])) if lines else []
    curves = [picture("learning curves", curves_png(lines))] if lines else []
    return [f"# Training of {run.name}", *curves, *tables({"stages": spans, "newest step": newest})]


def stage_rows(run: Run, stage: str, from_step: int) -> Rows:
    """Return the steps that a training just spent in one stage of its curriculum: one row each."""
    shown = ("step", "reward/mean", "probe/", "verdict/")
    rows = [
        {name: value for name, value in _with_kinds(line).items() if name.startswith(shown)}
        for line in run.store.lines("metrics.jsonl")
        if line.get("step", 0) >= from_step
    ]
    about = f"Steps of stage {stage} of run {run.name}; all steps: {run.store.path('metrics.jsonl')}"
    return Rows(key_of(run, f"stage-{stage}"), rows, about)


def _with_kinds(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `metrics.jsonl` with the kind of speed in each name, because a name is read alone."""
    from kernel_core.evaluation.metrics import is_of_speed

    kind = metrics.get("speedups", "")
    return {
        f"{name} ({kind})" if kind and is_of_speed(name) else name: value for name, value in metrics.items()
    }
