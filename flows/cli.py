"""The `dojo` command: every stage, the judge, the corpus search, runs, and the Prefect side.

Exit codes: 0 done, 1 a night regressed, 2 the caller's mistake, 3 a fault of the system's, 130 stopped.
An error is one line on stderr. A command's module is imported by its call alone, so that `dojo --help` is
immediate.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from cyclopts import App, CycloptsError, Parameter

from flows.arguments import Settings, Words
from kernel_core import __version__

STAGES = {
    "pipeline": "all stages: ingest, index, train, evaluate, best-of-n",
    "ingest": "build a clean snapshot of the corpus sources; `ingest verify` judges it",
    "index": "embed a snapshot and build its nearest-neighbour index",
    "cold-start": "train supervised before RL",
    "train": "train with RL on verified rewards",
    "evaluate": "evaluate a policy on held-out problems",
    "best-of-n": "search the best of N kernels per problem and verify it",
    "compare": "train several methods with several seeds, and compare them on the same problems",
    "promote": "give a name to a checkpoint that beats the current holder",
    "nightly": "evaluate the newest checkpoints of named runs against the last night",
}
ALIASES = {"best-of": "best-of-n"}
COMMANDS = {
    "prompt": "print the prompt of a problem",
    "judge": "judge a kernel: honest, correct, fast",
    "optimize": "make a module of yours faster with verified kernels",
    "teach": "write a judged kernel for a module by the generator",
    "audit": "find problems that accept answers which do no work",
    "harvest": "make problems from installed packages",
    "search": "find corpus kernels near a text or a problem",
    "serve": "serve the judge over HTTP",
    "runs": "list, show, stop and resume runs",
    "deploy": "check prefect.yaml, then create or update its deployments",
    "ui": "start the Prefect server and its UI",
}
"""Each is a module of `flows/commands/` with a function of its name."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run a command and return its exit code; an error is one line on stderr."""
    from kernel_core.errors import DojoError, interrupts_stay_interrupts

    words = [*argv[:2], ""]
    stage = ALIASES.get(words[0], words[0]) if words[0] in STAGES or words[0] in ALIASES else None
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with interrupts_stay_interrupts():
            code = app()(list(argv), result_action="return_value", exit_on_error=False, print_error=False)
            if stage is not None and {"-h", "--help"} & set(argv):
                from flows.commands.stages import stage_help

                sys.stdout.write(stage_help(stage))
            return int(code or 0)
    except CycloptsError as error:
        command = " ".join(("dojo", *(error.command_chain or ())))
        hint = _other_spelling(argv, is_stage=stage is not None)
        return _tell(f"{error} ({hint}`{command} --help` names every argument)", 2)
    except DojoError as error:
        return _tell(str(error), error.exit_code)
    except KeyboardInterrupt:
        # CPython would end by SIGINT, not by an exit code, if text that it executed raised the interrupt.
        exec("")
        resumes = stage is not None or words[0] == "optimize" or words[:2] == ["runs", "resume"]
        goes_on = "; everything finished is kept, and the same command goes on from there"
        return _tell(f"stopped{goes_on if resumes else ''}", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _tell(_fault(error, is_stage=stage is not None), 3)


def app() -> App:
    """Return the app with every command, whose arguments are those of its function."""
    made = App(
        name="dojo",
        help="Judge, teach and evaluate models that write Triton kernels.",
        version=f"dojo {__version__}",
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
    )
    for number, (stage, purpose) in enumerate(STAGES.items()):
        names = [stage, *(alias for alias, name in ALIASES.items() if name == stage)]
        made.command(_stage(stage), name=names, help=purpose, sort_key=number)
    for number, (name, purpose) in enumerate(COMMANDS.items(), start=len(STAGES)):
        made.command(f"{__package__}.commands.{name}:{name}", name=name, help=purpose, sort_key=number)
    return made


def _stage(stage: str) -> Callable[..., int]:
    def command(*words: Words, config: Settings = None, dry_run: bool = False) -> int:
        """Run a stage.

        Args:
            dry_run: check all settings, print them, run nothing
        """
        from flows.commands.stages import run_stage

        return run_stage(stage, words, config, dry_run=dry_run)

    return command


def _other_spelling(argv: Sequence[str], *, is_stage: bool) -> str:
    """Return a hint about the spelling: a stage takes `steps=3`, any other command `--steps 3`."""
    for word, after in zip(argv, (*argv[1:], ""), strict=True):
        if is_stage and word.startswith("--") and word not in ("--config", "--dry-run", "--help"):
            name, separator, value = word.removeprefix("--").replace("-", "_").partition("=")
            return f"settings are written {name}={value if separator else after or 'VALUE'}; "
        name, separator, value = word.partition("=")
        if not is_stage and separator and name.isidentifier():
            return f"options are written --{name.replace('_', '-')} {value or 'VALUE'}; "
    return ""


def _fault(error: OSError, *, is_stage: bool) -> str:
    """Describe a system error; where only space or permission was missing, a stage can go on."""
    words = error.strerror or str(error) or type(error).__name__
    where = f": {error.filename}" if error.filename else ""
    passes = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
    return f"{words}{where}{'; what was finished is kept, run it again' if is_stage and passes else ''}"


def _tell(message: str, exit_code: int) -> int:
    print(f"dojo: {' '.join(message.split())}", file=sys.stderr)
    return exit_code


def _as_interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
