"""What counts as the kernel in an answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.dialogue.parse import MAX_SOURCE_CHARS, parse_completion
from kernel_core.dialogue.prompt import format_completion
from kernel_core.records import Candidate, NoCandidate

KERNEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x"
SKETCH = KERNEL.replace("return x", "return x + 1  # sketch")


def source_of(text: str, finish_reason: str = "stop") -> str:
    found = parse_completion(text, finish_reason)
    assert isinstance(found, Candidate), found
    return found.source


def reason_of(text: str, finish_reason: str = "stop") -> str:
    found = parse_completion(text, finish_reason)
    assert isinstance(found, NoCandidate), found
    return found.reason


def test_the_contracts_own_form_is_read_back_exactly():
    found = parse_completion(format_completion("one launch", KERNEL), "stop")
    assert (found.source, found.thinking) == (KERNEL, "one launch")


@pytest.mark.parametrize(
    "text",
    [
        f"<KERNEL>\n{KERNEL}\n</KERNEL>",
        f"<think>\na\n</think>\n<KERNEL>{KERNEL}</KERNEL>",
        f"<KERNEL>\n```python\n{KERNEL}\n```\n</KERNEL>",
        f"<KERNEL>```\n{KERNEL}\n```</KERNEL>",
        f"<KERNEL>\n```python\n{KERNEL}\n</KERNEL>",
        f"a thought without its opening tag\n</think>\n<KERNEL>\n{KERNEL}\n</KERNEL>",
        f"<think>a<think>b</think>c</think><KERNEL>\n{KERNEL}\n</KERNEL>",
        f"<KERNEL>\n{SKETCH}\n</KERNEL> better:\n<KERNEL>\n{KERNEL}\n</KERNEL>",
        f"<KERNEL>\n{KERNEL}\n</KERNEL>\nand now <KERNEL>\nimport tor",
        f"I write it between <KERNEL> tags.\n<KERNEL>\n{KERNEL}\n</KERNEL>",
        f"<KERNEL>\n{KERNEL}\n</KERNEL>\n<think>was that right?",
        f"Here it is:\n```python\n{KERNEL}\n```\nand how to run it:\n```bash\npython k.py\n```",
        f"<KERNEL>\n```python\n{KERNEL}\n```\n</KERNEL>".replace("\n", "\r\n"),
    ],
)
def test_bent_forms_that_still_hold_one_clear_kernel(text):
    assert source_of(text) == KERNEL


OBJECT = json.dumps({"plan": "one launch, as class ModelNew", "code": KERNEL})


@pytest.mark.parametrize(
    "text",
    [
        OBJECT,
        f"Here it is:\n```json\n{OBJECT}\n```",
        f"<KERNEL>\n{OBJECT}\n</KERNEL>",
        json.dumps(KERNEL),
        f"<KERNEL>\n{json.dumps(KERNEL)}\n</KERNEL>",
        repr(KERNEL),
        f'"""\n{KERNEL}\n"""',
        f"<KERNEL><![CDATA[\n{KERNEL}\n]]></KERNEL>",
        f"<![CDATA[<KERNEL>\n{KERNEL}\n</KERNEL>]]>",
        json.dumps({"files": [{"name": "kernel.py", "text": f"\n{KERNEL}\n"}]}),
    ],
)
def test_a_quoted_kernel_is_read_without_its_quotes(text):
    assert source_of(text) == KERNEL


def test_a_kernel_that_holds_such_quotes_is_left_alone():
    text = KERNEL + "\n\nTEXTS = {'code': 'class ModelNew: pass'}\nPAGE = '<![CDATA[ x ]]'"
    assert source_of(f"<KERNEL>\n{text}\n</KERNEL>") == text
    assert source_of(f"```python\n{text}\n```") == text
    assert source_of(text) == text


@pytest.mark.parametrize(
    "text",
    [
        f"<think>\n<KERNEL>\n{SKETCH}\n</KERNEL>\n</think>\n<KERNEL>\n{KERNEL}\n</KERNEL>",
        f"so <KERNEL>\n{SKETCH}\n</KERNEL>\n</think>\n<KERNEL>\n{KERNEL}\n</KERNEL>",
        f"<think>\n```python\n{SKETCH}\n```\n</think>\n```python\n{KERNEL}\n```",
        f"<think>so <KERNEL>{SKETCH}</think>\n<KERNEL>\n{KERNEL}\n</KERNEL>",
    ],
)
def test_a_sketch_inside_a_thought_is_never_judged(text):
    assert source_of(text) == KERNEL


@pytest.mark.parametrize(
    ("text", "finish_reason", "reason"),
    [
        ("", "stop", "no <KERNEL> block"),
        ("", "length", "truncated"),
        ("", "error", "nothing was written"),
        (f"<think>\n<KERNEL>\n{SKETCH}\n</KERNEL>", "stop", "<think> block is never closed"),
        (f"<think>\n```python\n{SKETCH}\n```\n", "length", "truncated: the <think> block"),
        (f"<KERNEL>\n{KERNEL}", "length", "truncated: the <KERNEL> block"),
        (f"<KERNEL>\n{KERNEL}", "stop", "<KERNEL> block is never closed"),
        (f"```python\n{KERNEL}\n```\n<KERNEL>\nimport", "stop", "<KERNEL> block is never closed"),
        ("<KERNEL>\n\n</KERNEL>", "stop", "empty"),
        ("<KERNEL>\nimport torch\n\nclass ModelNew(:\n</KERNEL>", "stop", "syntax error in line 3"),
        (f"<KERNEL>\n{KERNEL.replace('ModelNew', 'Model')}\n</KERNEL>", "stop", "no class ModelNew"),
        (f"<KERNEL>\n{KERNEL.replace('forward', 'run')}\n</KERNEL>", "stop", "no forward method"),
        ("<KERNEL>\n" + "(" * 5000 + "\n</KERNEL>", "stop", ""),
        ("<KERNEL>\nx = 1\0\n</KERNEL>", "stop", ""),
        (f"<KERNEL>\n{KERNEL}\n#{'x' * MAX_SOURCE_CHARS}\n</KERNEL>", "stop", "characters"),
    ],
)
def test_an_answer_without_a_kernel_says_why(text, finish_reason, reason):
    assert reason in reason_of(text, finish_reason)


def test_a_complete_block_counts_although_the_answer_was_cut_off_after_it():
    assert source_of(f"<KERNEL>\n{KERNEL}\n</KERNEL>\nThis kernel", "length") == KERNEL


def test_the_thought_is_kept_when_there_is_no_kernel():
    assert parse_completion("<think>\nplan\n</think>\nsorry", "stop").thinking == "plan"


HEAD = "import torch\nimport torch.nn as nn\nimport triton"
FUNCTION = f"{HEAD}\n\n@triton.jit\ndef double(x):\n    pass"
MODULE = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return double[(1,)](x)"


def fenced(*pieces: str, fence: str = "```", language: str = "python") -> str:
    return "\n\nand then\n\n".join(f"{fence}{language}\n{piece}\n{fence}" for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (fenced(FUNCTION, MODULE), [FUNCTION, MODULE]),
        (fenced(FUNCTION.replace("pass", "old"), FUNCTION, MODULE), [FUNCTION, MODULE]),
        (fenced(HEAD, FUNCTION.partition("\n\n")[2], MODULE), [HEAD, FUNCTION.partition("\n\n")[2], MODULE]),
        (f"<KERNEL>\n{FUNCTION}\n</KERNEL>\n<KERNEL>\n{MODULE}\n</KERNEL>", [FUNCTION, MODULE]),
        (f"<KERNEL>\nFirst:\n{fenced(FUNCTION, MODULE)}\n</KERNEL>", [FUNCTION, MODULE]),
        (fenced(FUNCTION, KERNEL), [KERNEL]),
        (fenced(MODULE, KERNEL, "print(ModelNew)"), [KERNEL]),
    ],
)
def test_pieces_that_define_what_the_module_uses_are_joined(text, pieces):
    assert source_of(text) == "\n\n\n".join(pieces)


@pytest.mark.parametrize(
    "text",
    [
        f"Between <KERNEL> and </KERNEL> tags:\n{fenced(KERNEL)}",
        f"I use `<KERNEL>` tags.\n{fenced(KERNEL)}",
        f"<KERNEL>\n{fenced(KERNEL)}\nThat is all.",
        fenced(KERNEL, fence="~~~~"),
        fenced(KERNEL, language="Python title=kernel.py"),
        f"1. The kernel:\n   {fenced(KERNEL).replace(chr(10), chr(10) + '   ')}",
        f"```python\n{KERNEL}",
        f"```cpp\nclass ModelNew {{}};\n```\n{fenced(KERNEL)}",
        f"<kernel>\n{KERNEL}\n</kernel>",
        fenced(KERNEL, language="{python}"),
        f"```python\n{KERNEL}\n``` That is all.",
        f"```python\n{KERNEL}\n```<|im_end|>",
        f"```python\n{KERNEL}\n<|im_end|>\n",
        f"```python\n{KERNEL}<|im_end|><|endoftext|>",
        f"{KERNEL}\n<｜end▁of▁sentence｜>",
        KERNEL,
        f"{KERNEL}</s>",
        f"Here is the kernel.\n\n{KERNEL}\n\nIt copies nothing. Is that what you want?",
        f"```\nmy notes = none\n```\nThe module:\n{KERNEL}\nThat is all.",
        f"\ufeff{KERNEL}\n",
        fenced(KERNEL).replace("    ", "\u00a0\u00a0\u00a0 "),
    ],
)
def test_other_fences_and_tags_in_prose(text):
    assert source_of(text) == KERNEL


@pytest.mark.parametrize(
    "module",
    [
        "ModelNew = Mine",
        "class ModelNew(Mine):\n    pass",
        "try:\n    import flash\nexcept ImportError:\n    ModelNew = Mine",
        "class ModelNew(nn.Module):\n    pass\n\nModelNew.forward = Mine.forward",
        "class ModelNew(nn.Module):\n    forward = Mine.forward",
    ],
)
def test_forward_may_be_inherited_or_assigned(module):
    base = "class Mine(nn.Module):\n    def forward(self, x):\n        return x"
    source = f"import torch.nn as nn\n\n{base}\n\n{module}"
    assert source_of(f"<KERNEL>\n{source}\n</KERNEL>") == source


@pytest.mark.parametrize(
    ("text", "finish_reason", "reason"),
    [
        (f"```python\n{KERNEL}", "length", "truncated"),
        (fenced("class ModelNew(nn.Module):\n    pass"), "stop", "no forward"),
        (fenced(KERNEL, "class ModelNew(:"), "stop", "syntax error in line 1"),
        ("<KERNEL>\nHere it is, without code.\n</KERNEL>", "stop", "syntax error in line 1"),
    ],
)
def test_an_answer_with_no_whole_module_says_why(text, finish_reason, reason):
    assert reason in reason_of(text, finish_reason)


TAGS = [
    "<think>",
    "</think>",
    "<KERNEL>",
    "</KERNEL>",
    "```python\n",
    "```",
    "\n",
    KERNEL,
    "class ModelNew:",
    "\0",
]


@given(
    st.lists(st.one_of(st.sampled_from(TAGS), st.text(max_size=20)), max_size=12).map("".join),
    st.sampled_from(["stop", "length", "error"]),
)
def test_no_text_makes_it_raise(text, finish_reason):
    found = parse_completion(text, finish_reason)
    assert isinstance(found, Candidate) or found.reason


lines_of_code = st.lists(
    st.sampled_from(
        ["x = 1", "# note", 's = "<b>"', "y = {1: 2}", "", "z = '```'", "if 1:\n    x = 2", "<KERNEL"]
    ),
    max_size=6,
)
thoughts = st.text(st.characters(exclude_characters="<>\r", exclude_categories=("Cs",)), max_size=40)


@given(lines_of_code.map("\n".join), thoughts)
def test_what_the_contract_writes_is_read_back_exactly_if_it_is_python(code, thinking):
    source = f"{code}\n{KERNEL}".lstrip("\n")
    found = parse_completion(format_completion(thinking, source), "stop")
    if isinstance(found, Candidate):
        assert found.source == source
    else:
        assert "syntax error" in found.reason


def test_a_docstring_may_hold_a_fence():
    usage = f'{KERNEL}\n\n"""Use it as\n\n```python\nModelNew()(x)\n```\n"""'
    assert source_of(fenced(usage)) == usage


@pytest.mark.parametrize(
    "text",
    [
        f"First try:\n{SKETCH}\nBetter is this:\n{KERNEL}\nDone.",
        f"from here on it is code:\n{KERNEL}\nDone.",
        f"Here it is:\n{KERNEL.replace('x):', 'x:')}\nDone.",
        "I import torch.\n\n    class ModelNew: pass\n\nThat is a sketch.",
    ],
)
def test_prose_between_code_leaves_no_kernel(text):
    assert reason_of(text) == "no <KERNEL> block"


def test_bare_code_that_the_token_limit_cut_off_is_no_kernel():
    assert reason_of(f"Here it is:\n{KERNEL}", "length").startswith("truncated")


def test_a_special_token_inside_code_is_kept():
    code = KERNEL.replace("return x", 'return x if x.name != "<|im_end|>" else None')
    assert source_of(f"<KERNEL>\n{code}\n</KERNEL><|im_end|>") == code


def test_an_answer_of_nothing_but_special_tokens_takes_no_time_to_read():
    assert reason_of("<|im_end|> " * 20_000 + "no kernel") == "no <KERNEL> block"
