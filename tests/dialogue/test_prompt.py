"""What a prompt shows, in which order, and what it gives up when the budget is tight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.config import RolloutConfig
from kernel_core.dialogue.prompt import build_prompt, format_completion
from kernel_core.dialogue.turns import Completion, Turn
from kernel_core.records import Candidate, Evaluation, Exemplar, NoCandidate, Problem, Verdict, sha256_text

SOURCE = (
    "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n"
)
PROBLEM = Problem(
    id="t/add", suite="t", name="add", family="elementwise", source=SOURCE, sha256=sha256_text(SOURCE)
)


def exemplar(name: str) -> Exemplar:
    return Exemplar(
        id=name,
        source="s",
        source_revision="1",
        row_key=name,
        licence="MIT",
        language="triton",
        family="elementwise",
        reference_code=f"reference {name} $source {{x}}",
        kernel_code=f"kernel {name}",
        claimed_correct=True,
        claimed_speedup=1.5,
        reference_hash="",
        kernel_hash="",
    )


def turn(index: int, verdict: Verdict = Verdict.WRONG, passed: int = 0, kernel: str | None = "") -> Turn:
    source = f"kernel of turn {index} {kernel}"
    evaluation = Evaluation(
        problem_id=PROBLEM.id,
        candidate_sha=sha256_text(source),
        verdict=verdict,
        trials=3,
        trials_passed=3 if verdict is Verdict.CORRECT else passed,
        predicted_speedup=1.2 if verdict is Verdict.CORRECT else None,
        feedback=f"result {index}",
        gym_version="1",
        device="cpu",
        seconds=0.1,
    )
    no_kernel = NoCandidate(reason="no <KERNEL> block", thinking="secret thought")
    return Turn(
        problem_id=PROBLEM.id,
        trajectory=0,
        index=index,
        messages=(),
        completion=Completion(text="raw text", finish_reason="stop", policy_version="v"),
        candidate=no_kernel if kernel is None else Candidate.from_source(source, "secret thought"),
        evaluation=evaluation,
    )


def tokens(text: str) -> int:
    return 10 * len(text.split())


def prompt(exemplars=(), history=(), budget=100_000, template="compact"):
    config = RolloutConfig(template=template, prompt_budget=budget)
    return build_prompt(PROBLEM, exemplars, history, config, tokens)


def shown(messages) -> str:
    return "\n".join(message["content"] for message in messages)


def total(messages) -> int:
    return sum(tokens(message["content"]) + 4 for message in messages)


@pytest.mark.parametrize("template", ["compact", "full"])
def test_the_first_turn_asks_with_the_problem_after_its_exemplars(template):
    messages = prompt([exemplar("one"), exemplar("two")], template=template)
    text = messages[-1]["content"]
    assert messages[-1]["role"] == "user"
    assert SOURCE in text
    assert text.index("kernel one") < text.index("kernel two") < text.index(SOURCE)
    assert "reference one $source {x}" in text


def test_the_full_template_states_the_contract_and_why_an_exemplar_is_shown():
    system, user = prompt([exemplar("one")], template="full")
    assert system["role"] == "system"
    for part in ("<think>", "</think>", "<KERNEL>", "</KERNEL>", "ModelNew"):
        assert part in system["content"]
    assert "nearest references" in user["content"] and "1.5x" in user["content"]


def test_the_full_template_names_the_gpu_the_dtypes_and_how_parameters_match():
    config = RolloutConfig(template="full", gpu="H100", prompt_budget=100_000)
    system = build_prompt(PROBLEM, (), (), config, tokens)[0]["content"]
    assert "It runs on H100, in the dtypes" in system
    assert "TF32" in system and "bfloat16" in system
    assert "state_dict" in system and "by name and shape" in system
    assert "$" not in system


def test_the_compact_template_adds_few_tokens():
    assert tokens(shown(prompt())) - tokens(SOURCE) < 120


def test_later_turns_extend_the_first_prompt_in_time_order_without_thoughts():
    first = prompt([exemplar("one")])
    later = prompt([exemplar("one")], [turn(0), turn(1)])
    assert later[: len(first)] == first
    assert [message["role"] for message in later] == ["user", "assistant", "user", "assistant", "user"]
    assert later[1]["content"] == "<KERNEL>\nkernel of turn 0\n</KERNEL>"
    assert "result 0" in later[2]["content"] and "result 1" in later[4]["content"]
    assert "secret" not in shown(later) and "raw text" not in shown(later)


def test_an_answer_without_a_kernel_still_gets_its_result():
    messages = prompt(history=[turn(0, Verdict.MALFORMED, kernel=None)])
    assert messages[1] == {"role": "assistant", "content": "(no kernel)"}
    assert "result 0" in messages[2]["content"]


def test_the_oldest_attempts_go_first_but_the_best_and_the_last_stay():
    history = [turn(0), turn(1, Verdict.CORRECT), turn(2), turn(3)]
    full = total(prompt([exemplar("one")], history))
    text = shown(prompt([exemplar("one")], history, budget=full - 1))
    assert "kernel of turn 0" not in text
    assert all(f"kernel of turn {index}" in text for index in (1, 2, 3))
    text = shown(prompt([exemplar("one")], history, budget=full - 150))
    assert "kernel of turn 1" in text and "kernel of turn 3" in text and "kernel one" in text
    assert "kernel of turn 2" not in text


def test_then_exemplars_go_least_near_first_and_the_problem_never():
    exemplars = [exemplar("one"), exemplar("two")]
    text = shown(prompt(exemplars, budget=total(prompt(exemplars)) - 1))
    assert "kernel one" in text and "kernel two" not in text
    long = turn(0, kernel="x " * 500)
    text = shown(prompt(exemplars, [long]))
    assert text.count("x x x") > 0
    tight = prompt(exemplars, [long], budget=64)
    assert SOURCE in shown(tight) and "kernel one" not in shown(tight)
    assert tight[1]["content"] == "(kernel not shown)" and "result 0" in tight[2]["content"]


@given(
    st.lists(st.tuples(st.sampled_from(list(Verdict)), st.integers(0, 60)), max_size=6),
    st.integers(0, 3),
    st.integers(64, 4000),
)
def test_a_prompt_is_within_its_budget_or_holds_nothing_that_could_go(attempts, num_exemplars, budget):
    history = [turn(i, verdict, kernel="x " * size) for i, (verdict, size) in enumerate(attempts)]
    messages = prompt([exemplar(str(i)) for i in range(num_exemplars)], history, budget=budget)
    assert SOURCE in messages[0]["content"]
    assert total(messages) <= budget or not any(
        "kernel of turn" in m["content"] or "# reference" in m["content"] for m in messages
    )
    assert not history or f"result {len(history) - 1}" in messages[-1]["content"]


def test_a_good_answer_has_exactly_this_form():
    assert format_completion("fuse", "import torch\n") == (
        "<think>\nfuse\n</think>\n<KERNEL>\nimport torch\n</KERNEL>"
    )


def test_exemplars_that_do_not_fit_their_budget_are_passed_over_for_shorter_ones() -> None:
    long = exemplar("long").model_copy(update={"kernel_code": "word " * 200})
    config = RolloutConfig(template="full", prompt_budget=100_000, exemplar_budget=1_000)
    shown = build_prompt(PROBLEM, [exemplar("one"), long, exemplar("two")], (), config, tokens)[-1]["content"]
    assert "kernel one" in shown and "kernel two" in shown and "word word" not in shown


def test_each_exemplar_says_why_it_is_shown() -> None:
    sibling = exemplar("sibling").model_copy(
        update={
            "reference_code": SOURCE.replace("x + 1", "torch.relu(x + 2)"),
            "verified": Verdict.CORRECT,
            "predicted_speedup": 2.5,
        }
    )
    shown = "\n".join(message["content"] for message in prompt([sibling], template="full"))
    assert "applies shift too; our judge found it correct; our judge predicts 2.5x" in shown
    assert "its maker" not in shown


def thinking_turn(text: str) -> Turn:
    one = turn(0)
    candidate = one.candidate.model_copy(update={"thinking": "one pass over the rows"})
    completion = one.completion.model_copy(update={"text": text})
    return one.model_copy(update={"candidate": candidate, "completion": completion})


@pytest.mark.parametrize(
    ("thoughts", "shows", "asks"),
    [("drop", None, False), ("keep", "one pass over the rows", False), ("summary", "It fuses both.", True)],
)
@pytest.mark.parametrize("template", ["compact", "full"])
def test_what_later_prompts_show_of_earlier_thoughts(thoughts, shows, asks, template):
    one = thinking_turn("<think>…</think><KERNEL>…</KERNEL><SUMMARY>\nIt fuses both.\n</SUMMARY>")
    config = RolloutConfig(thoughts=thoughts, prompt_budget=4000, template=template)
    messages = build_prompt(PROBLEM, [], [one], config, lambda text: len(text) // 4)
    answer = next(m["content"] for m in messages if m["role"] == "assistant")
    for text in ("one pass over the rows", "It fuses both."):
        assert (text in answer) is (text == shows)
    assert ("SUMMARY" in messages[-1]["content"]) is asks


def test_a_long_summary_is_cut_and_a_missing_one_shows_nothing():
    config = RolloutConfig(thoughts="summary", prompt_budget=4000)
    long, none = (
        build_prompt(PROBLEM, [], [thinking_turn(text)], config, lambda text: len(text) // 4)
        for text in (f"<SUMMARY>{'x' * 5000}</SUMMARY>", "<SUMMARY>never closed")
    )
    assert "x" * 800 in long[-2]["content"] and "x" * 801 not in long[-2]["content"]
    assert "SUMMARY" not in none[-2]["content"]
