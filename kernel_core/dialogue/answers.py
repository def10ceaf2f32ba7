"""Answers of a policy, kept as Parquet before anything judges them.

While a stage writes, each batch is a file of its own under `answers/`. A finished stage has all of them in
`answers.parquet`, and the pieces are gone. An answer is asked for again only if there is none for the same
prompt: so a stage that was cut goes on from what was written, and any judge can judge it later.

`stored_answers` also reads a file of answers that was written elsewhere.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
from pydantic import ValidationError

from kernel_core.errors import ConfigError, Corrupt, NotFound
from kernel_core.parquet_rows import packed, schema_of, unpacked
from kernel_core.policy.protocol import Message, Sample
from kernel_core.records import Record, sha256_text
from kernel_core.store import Store, digest_of

FILE = "answers.parquet"
PIECES = "answers"
SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")
"""Files of answers from elsewhere."""
_OTHER_NAMES = {"problem": "problem_id", "end": "finish_reason"}
SCHEMA = schema_of(
    (pa.string(), "problem_id problem_sha256"),
    (pa.int64(), "sample turn seed"),
    (pa.string(), "prompt_sha256 messages"),
    (pa.list_(pa.string()), "exemplar_ids"),
    (pa.string(), "text finish_reason"),
    (pa.int64(), "num_tokens"),
    (pa.float64(), "logprob"),
    (pa.string(), "policy_version"),
)
"""Columns of the answers; `messages` is the prompt as JSON."""
Key = tuple[str, int, int]
"""Problem id, sample, turn."""


class KeptAnswer(Record):
    """Text of a policy, with all that decided it."""

    problem_id: str
    problem_sha256: str = ""
    """Empty where the source of the problem at that time is not known."""
    sample: int
    turn: int = 0
    seed: int = 0
    """Seed of the draw."""
    prompt_sha256: str = ""
    messages: tuple[Message, ...] = ()
    exemplar_ids: tuple[str, ...] = ()
    text: str
    finish_reason: Literal["stop", "length", "error"] = "stop"
    num_tokens: int = 0
    """0 where the policy does not count them."""
    logprob: float | None = None
    """Sum of the log-probabilities of its tokens when they were drawn, in nats; None where unknown."""
    policy_version: str

    @property
    def key(self) -> Key:
        """Return the answer's position in its stage."""
        return self.problem_id, self.sample, self.turn

    def as_sample(self) -> Sample:
        """Return the answer as it came from the policy, without its token ids."""
        return Sample(self.text, self.finish_reason, self.policy_version, counted=self.num_tokens)


def prompt_hash(messages: Sequence[Message]) -> str:
    """Hash of a prompt: roles and contents."""
    return sha256_text(json.dumps(list(messages), sort_keys=True, ensure_ascii=False))


class KeptAnswers:
    """Answers in a folder: those of a finished stage, or the pieces of one under way.

    Only pieces of the same `digest` count, which is that of everything that decides answers. With `answers`
    the folder is not read.
    """

    def __init__(
        self, store: Store, digest: str = "", answers: Mapping[Key, KeptAnswer] | None = None
    ) -> None:
        self._store, self._digest = store, digest[:12]
        if answers is not None:
            self._answers = dict(answers)
            return
        names = [FILE] if store.exists(FILE) else self._pieces()
        read = (_read(store, name) for name in names)
        self._answers = {answer.key: answer for answers in read for answer in answers}

    def find(self, key: Key, messages: Sequence[Message]) -> KeptAnswer | None:
        """Return the answer in a place; None if there is none to this prompt."""
        answer = self._answers.get(key)
        return answer if answer is not None and answer.prompt_sha256 == prompt_hash(messages) else None

    def keep(self, answers: Sequence[KeptAnswer]) -> None:
        """Write answers as a piece. Safe to call from several threads."""
        if answers:
            name = digest_of([*(answer.key for answer in answers), answers[0].prompt_sha256])[:16]
            self._store.write(f"{PIECES}/{self._digest}-{name}.parquet", _packed(answers))
            self._answers |= {answer.key: answer for answer in answers}

    def in_order(self) -> list[KeptAnswer]:
        """Return all answers by problem, sample and turn. Raises `NotFound` where there are none."""
        if not self._answers:
            raise NotFound(f"no answers in {self._store.root}; `dojo evaluate` writes them")
        return [self._answers[key] for key in sorted(self._answers)]

    def first(self, samples: int) -> KeptAnswers:
        """Return the first `samples` conversations of each problem that has so many."""
        by_problem: dict[str, list[int]] = {}
        for problem_id, sample, turn in sorted(self._answers):
            if turn == 0:
                by_problem.setdefault(problem_id, []).append(sample)
        chosen = {
            (problem_id, sample)
            for problem_id, numbers in by_problem.items()
            if len(numbers) >= samples
            for sample in numbers[:samples]
        }
        answers = {key: answer for key, answer in self._answers.items() if key[:2] in chosen}
        return KeptAnswers(self._store, self._digest, answers)

    @property
    def problem_ids(self) -> set[str]:
        """Return the ids of the problems that are answered."""
        return {problem_id for problem_id, _, _ in self._answers}

    @property
    def policies(self) -> str:
        """Versions of the policies that wrote the answers."""
        return ", ".join(sorted({answer.policy_version for answer in self._answers.values()}))

    @property
    def digest(self) -> str:
        """Digest of all texts."""
        return digest_of([[*answer.key, sha256_text(answer.text)] for answer in self.in_order()])

    def seal(self, store: Store) -> dict[str, str]:
        """Write all answers as one file of a folder; gives its name and SHA-256."""
        return {FILE: store.write(FILE, _packed(self.in_order()))}

    def _pieces(self) -> list[str]:
        names = (name for name in self._store.names(PIECES) if name.startswith(self._digest))
        return [f"{PIECES}/{name}" for name in names]


def is_answers_file(path: str) -> bool:
    """Return True for the address of a file of answers, False for that of a stage's folder."""
    return path.endswith(SUFFIXES)


def stored_answers(path: str) -> KeptAnswers:
    """Return the answers in a stage's folder, or in a Parquet or JSON-lines file of one row an answer.

    A row of a file has `problem_id` (or `problem`), `sample` and `text`, and may have the other fields of
    `KeptAnswer`; `end` is another name of `finish_reason`. Raises `NotFound` for a file that is not there,
    `ConfigError` for a row without a field or with one that another row repeats.
    """
    if not is_answers_file(path):
        return KeptAnswers(Store(path))
    folder, _, name = path.rpartition("/")
    store = Store(folder or ".")
    answers: dict[Key, KeptAnswer] = {}
    for number, row in enumerate(_rows(store.read(name), path), start=1):
        given = {_OTHER_NAMES.get(key, key): value for key, value in row.items() if value is not None}
        if isinstance(given.get("messages"), str):
            given["messages"] = json.loads(given["messages"])
        fields = {key: value for key, value in given.items() if key in KeptAnswer.model_fields}
        try:
            answer = KeptAnswer.model_validate({"policy_version": name, **fields})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise ConfigError(
                f"{path}, row {number}: {key}: {first['msg'].lower()}; wanted: problem_id, sample, text"
            ) from error
        if answer.key in answers:
            raise ConfigError(f"{path}, row {number} is a second answer in the place of {answer.key}")
        answers[answer.key] = answer
    return KeptAnswers(store, answers=answers)


def _rows(data: bytes, path: str) -> list[dict[str, Any]]:
    try:
        if path.endswith(".parquet"):
            return unpacked(data)
        text = gzip.decompress(data) if path.endswith(".gz") else data
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, OSError, EOFError, pa.ArrowException) as error:
        raise ConfigError(f"{path} cannot be read as rows of answers: {error}") from error
    if wrong := next((row for row in rows if not isinstance(row, dict)), None):
        raise ConfigError(f"{path}: a line holds {type(wrong).__name__}, an object was wanted")
    return rows


def _packed(answers: Sequence[KeptAnswer]) -> bytes:
    rows = (
        answer.model_dump() | {"messages": json.dumps(answer.messages, ensure_ascii=False)}
        for answer in answers
    )
    return packed(rows, SCHEMA)


def _read(store: Store, name: str) -> list[KeptAnswer]:
    try:
        rows = unpacked(store.read(name))
        return [KeptAnswer.model_validate(row | {"messages": json.loads(row["messages"])}) for row in rows]
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise Corrupt(f"{store.path(name)} does not hold answers; remove it and run again") from error
