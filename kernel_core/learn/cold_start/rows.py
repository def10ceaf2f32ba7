"""Rows of a cold start: conversations as token ids, split into training and held-back rows.

Conversations about one problem have the same prompt and often the same answer. So problems are held back, and
not conversations; otherwise the loss would mostly say what was learned by heart.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from kernel_core.learn.batch import TokenRow
from kernel_core.learn.cold_start.dataset import Conversation
from kernel_core.policy.trainable import Trainable
from kernel_core.store import digest_of

HELD_BACK_EVERY, HELD_BACK_AT_MOST = 50, 240
"""One problem in the first number is held back; the second caps these problems, and the conversations about
them that measure the final loss."""
_OPENED = "<think>"


def encode(policy: Trainable, conversations: Sequence[Conversation]) -> list[TokenRow]:
    """Token ids of every conversation, as a rollout would have them; all texts in one call a side."""
    if not conversations:
        return []
    prompts = policy.prompt_texts([c.messages for c in conversations])
    answers = [_continuing(prompt, c.answer) for prompt, c in zip(prompts, conversations, strict=True)]
    end = policy.end_ids[0]
    return [
        TokenRow(np.asarray(prompt, np.int32), np.asarray([*answer, end], np.int32))
        for prompt, answer in zip(_token_ids(policy, prompts), _token_ids(policy, answers), strict=True)
    ]


def _continuing(prompt: str, answer: str) -> str:
    """Return the answer after a prompt; thoughts that the chat template opened are not opened again."""
    if not prompt.rstrip().endswith(_OPENED):
        return answer
    return answer.removeprefix(_OPENED + "\n" if prompt.endswith("\n") else _OPENED)


def _token_ids(policy: Trainable, texts: Sequence[str]) -> list[list[int]]:
    """Tokenise each text; a repeated text (a corpus kernel, say) is tokenised once."""
    distinct = list(dict.fromkeys(texts))
    ids = dict(zip(distinct, policy.tokenizer(distinct, add_special_tokens=False)["input_ids"], strict=True))
    return [ids[text] for text in texts]


def subject(conversation: Conversation) -> str:
    """Return the subject of a conversation: its problem, or the beginning of a chat from a file."""
    if conversation.kind != "given":
        return conversation.problem_id
    opening = takewhile(lambda message: message["role"] != "assistant", conversation.messages)
    return digest_of([dict(message) for message in opening])


def held_back(subjects: Sequence[str]) -> tuple[set[int], list[int]]:
    """Choose the conversations to hold back, and those of them that measure the loss, by their subjects.

    All about a subject are held back together: the same prompt, and often the same answer, comes many times.
    """
    distinct = list(dict.fromkeys(subjects))
    number = min(len(distinct) // HELD_BACK_EVERY, HELD_BACK_AT_MOST)
    chosen = set(distinct[::HELD_BACK_EVERY][:number])
    rounds: Counter[str] = Counter()
    ordered: list[tuple[int, int]] = []
    for index, subject in enumerate(subjects):
        if subject in chosen:
            ordered.append((rounds[subject], index))
            rounds[subject] += 1
    measuring = [index for _, index in sorted(ordered)]  # as many subjects as there are
    return set(measuring), measuring[:HELD_BACK_AT_MOST]


def digest_of_rows(rows: Sequence[TokenRow]) -> str:
    """Return a digest of all token ids: other texts are another cold start."""
    digest = hashlib.sha256()
    for ids in (ids for row in rows for ids in (row.prompt_ids, row.answer_ids)):
        digest.update(len(ids).to_bytes(4, "little"))
        digest.update(ids.tobytes())
    return digest.hexdigest()
