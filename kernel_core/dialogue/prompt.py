"""Prompts: the problem, kernels to learn from, and what became of earlier attempts.

The first turn asks with the problem (and exemplars). Later turns are a chat: that same first message,
then each earlier kernel as the assistant's answer, and what the judge found as the next user message. Of
earlier thoughts it shows nothing (`drop`), the policy's own words about them (`summary`), or all (`keep`).
So a later prompt extends the earlier ones, and caches of prefixes work.

When the budget is tight, room is made in this order: the oldest attempts, sparing the best and the last;
exemplars, least near first; the best attempt; the text of the last kernel. The problem is never cut.
Exemplars have a budget of their own within it (`exemplar_budget`), and each says why it is shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from string import Template
from typing import Literal

import pynvml

from kernel_core.config import RolloutConfig
from kernel_core.data_folder import DATA
from kernel_core.dialogue.traces import trace_of
from kernel_core.dialogue.turns import Turn
from kernel_core.policy.protocol import Message
from kernel_core.records import Candidate, Exemplar, Problem, Verdict
from kernel_core.retrieval.reasons import reasons_for

_FOLDER = DATA / "prompts"

MAX_SUMMARY_CHARS = 800
"""About 200 tokens: a few sentences, as Kevin's policy wrote them."""
_SUMMARY = re.compile(r"<SUMMARY>(.*?)</SUMMARY>", re.DOTALL)
Thoughts = Literal["drop", "summary", "keep"]

_MESSAGE_OVERHEAD_TOKENS = 4
"""Role marks and line breaks around a message, which chat templates add."""

_RANK = {
    Verdict.MALFORMED: 0,
    Verdict.HACKED: 0,
    Verdict.NOT_COMPILED: 1,
    Verdict.TIMED_OUT: 2,
    Verdict.CRASHED: 2,
    Verdict.WRONG: 3,
    Verdict.CORRECT: 4,
}


@dataclass(frozen=True)
class Wording:
    """Texts of one template; `$name` marks a placeholder."""

    system: str
    exemplar: str
    problem: str
    instruction: str
    retry: str
    no_candidate: str
    too_long: str
    summary: str
    """Request for a summary, where later prompts show summaries."""


@dataclass(frozen=True)
class _Contents:
    """Contents of a prompt; the budget removes some until it fits."""

    exemplars: tuple[Exemplar, ...]
    attempts: tuple[Turn, ...]
    show_last_kernel: bool = True


def build_prompt(
    problem: Problem,
    exemplars: Sequence[Exemplar],
    history: Sequence[Turn],
    config: RolloutConfig,
    count_tokens: Callable[[str], int],
) -> tuple[Message, ...]:
    """Chat messages that ask for a kernel, within `config.prompt_budget` tokens unless the problem is longer.

    `history` holds the earlier turns of the conversation in time order; `exemplars` the nearest first.
    """
    contents = _Contents(_affordable(problem, exemplars, config, count_tokens), tuple(history))
    while True:
        messages = _render(problem, contents, config)
        if _num_tokens(messages, count_tokens) <= config.prompt_budget:
            return messages
        smaller = _with_less(contents)
        if smaller is None:
            return messages
        contents = smaller


def format_completion(thinking: str, source: str) -> str:
    """Return the exact text of a good answer: the cold start's target, readable by `parse_completion`."""
    return f"<think>\n{thinking.strip()}\n</think>\n{_kernel_block(source)}"


def _template(config: RolloutConfig) -> str:
    return "compact" if config.template == "auto" else config.template


@cache
def load_wording(template: str) -> Wording:
    """Load the wording under `data/prompts/`."""
    with (_FOLDER / f"{template}.toml").open("rb") as file:
        texts = tomllib.load(file)
    return Wording(**{name: text.strip("\n") for name, text in texts.items()})


def _kernel_block(source: str) -> str:
    return f"<KERNEL>\n{source.strip()}\n</KERNEL>"


def _render(problem: Problem, contents: _Contents, config: RolloutConfig) -> tuple[Message, ...]:
    wording, thoughts = load_wording(_template(config)), config.thoughts
    instruction = wording.instruction
    if thoughts == "summary":
        instruction = f"{instruction}\n{wording.summary}"
    parts = [_exemplar_text(problem, exemplar, wording) for exemplar in contents.exemplars]
    parts.append(
        Template(wording.problem).substitute(name=problem.name, source=_reference_text(problem, config))
    )
    about = {"gpu": config.gpu or _gpu_here(), "dtype": _dtype(problem)}
    system = Template(wording.system).substitute(about) if wording.system else ""
    messages = [_message("system", system)] if system else []
    messages.append(_message("user", "\n".join([*parts, instruction])))
    for turn in contents.attempts:
        shown = contents.show_last_kernel or turn is not contents.attempts[-1]
        result = Template(wording.retry).substitute(feedback=turn.evaluation.feedback)
        messages.append(_message("assistant", _answer(turn, wording, shown, thoughts)))
        messages.append(_message("user", f"{result}\n{instruction}"))
    return tuple(messages)


def _dtype(problem: Problem) -> str:
    """Name the type of the floating-point inputs and weights."""
    return problem.precision if problem.precision != "own" else "float32 where it names none"


def _reference_text(problem: Problem, config: RolloutConfig) -> str:
    text = problem.source
    if problem.precision != "own":
        text = f"# inputs and weights are cast to {problem.precision}\n{text}"
    trace = trace_of(problem) if config.trace else ""
    return f"{text.rstrip()}\n\n# trace\n{trace}\n" if trace else text


def _exemplar_text(problem: Problem, exemplar: Exemplar, wording: Wording) -> str:
    return Template(wording.exemplar).substitute(
        why=_why(problem, exemplar),
        reference=exemplar.reference_code.strip(),
        kernel=exemplar.kernel_code.strip(),
    )


def _affordable(
    problem: Problem,
    exemplars: Sequence[Exemplar],
    config: RolloutConfig,
    count_tokens: Callable[[str], int],
) -> tuple[Exemplar, ...]:
    """Return the nearest exemplars that fit into `config.exemplar_budget`; one too long is passed over."""
    if config.exemplar_budget is None:
        return tuple(exemplars)
    wording, left, taken = load_wording(_template(config)), config.exemplar_budget, []
    for exemplar in exemplars:
        length = count_tokens(_exemplar_text(problem, exemplar, wording))
        if length <= left:
            left -= length
            taken.append(exemplar)
    return tuple(taken)


def _answer(turn: Turn, wording: Wording, shown: bool, thoughts: Thoughts) -> str:
    if not isinstance(turn.candidate, Candidate):
        return wording.no_candidate
    if not shown:
        return wording.too_long
    if thoughts == "keep" and turn.candidate.thinking:
        return format_completion(turn.candidate.thinking, turn.candidate.source)
    summary = _summary(turn.completion.text) if thoughts == "summary" else ""
    return _kernel_block(turn.candidate.source) + (f"\n<SUMMARY>\n{summary}\n</SUMMARY>" if summary else "")


def _summary(text: str) -> str:
    """Return the policy's summary of its last attempt, cut to its length; empty when it wrote nothing."""
    summaries = _SUMMARY.findall(text)
    return summaries[-1].strip()[:MAX_SUMMARY_CHARS].strip() if summaries else ""


def _why(problem: Problem, exemplar: Exemplar) -> str:
    """Return one line on the choice of this exemplar, from known facts about it."""
    family = f" ({exemplar.family})" * bool(exemplar.family)
    reasons = [f"one of the nearest references in the corpus{family}"]
    return "; ".join([*reasons, *reasons_for(problem.source, exemplar)])


def _with_less(contents: _Contents) -> _Contents | None:
    """Return the contents without the least useful item; None when only the problem is left."""
    attempts = contents.attempts
    best = max(attempts, key=_goodness, default=None)
    for index, turn in enumerate(attempts[:-1]):
        if turn is not best:
            return _Contents(contents.exemplars, attempts[:index] + attempts[index + 1 :])
    if contents.exemplars:
        return _Contents(contents.exemplars[:-1], attempts)
    if len(attempts) > 1:
        return _Contents((), attempts[-1:])
    if attempts and contents.show_last_kernel:
        return _Contents((), attempts, show_last_kernel=False)
    return None


def _goodness(turn: Turn) -> tuple[int, float, int]:
    """Orders attempts; between equals the later one, being nearer to what comes next, wins."""
    evaluation = turn.evaluation
    passed = evaluation.trials_passed / max(1, evaluation.trials)
    return _RANK[evaluation.verdict], evaluation.best_known_speedup or passed, turn.index


def _num_tokens(messages: Sequence[Message], count_tokens: Callable[[str], int]) -> int:
    return sum(count_tokens(message["content"]) + _MESSAGE_OVERHEAD_TOKENS for message in messages)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


@cache
def _gpu_here() -> str:
    """Return the name of this machine's first GPU by NVML, which needs no CUDA context."""
    try:
        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError:
        return "an NVIDIA GPU"
    return name if isinstance(name, str) else str(name, "utf-8")
