"""Report of one step of RL, for a person."""

from __future__ import annotations

from kernel_core.gym.contract.requests import Compared
from kernel_core.learn.alarms import Alarm
from kernel_core.learn.update_report import UpdateReport
from kernel_core.records import Record
from kernel_core.reward.curriculum import Probe, StageEvent


class StepReport(Record):
    """Report of one step, for a person. `seconds` has the wall clock by phase; nothing else depends on it."""

    step: int
    steps: int
    stage: str
    event: StageEvent | None
    """Change of stage after this step, if there was one."""
    alarms: tuple[Alarm, ...] = ()
    """Early warnings that begin to ring with this step."""
    reward_mean: float
    verdicts: dict[str, float]
    """Share of the turns by verdict."""
    correct_rate: float
    fast_1_rate: float | None
    """None where no kernel was timed."""
    speedups: str
    """Their kind: `measured`, or `predicted for` a GPU."""
    update: UpdateReport
    probe: Probe | None
    checkpoint: str | None
    """Folder of the checkpoint written after this step, if one was."""
    num_sampled_tokens: int
    compared: Compared = Compared()
    """Answers that were judged fast and in full."""
    seconds: dict[str, float]

    def lines(self) -> list[str]:
        """Return the step as lines of a log."""
        fast = "not timed" if self.fast_1_rate is None else f"{100 * self.fast_1_rate:.0f} %"
        lines = [
            f"step {self.step} of {self.steps}, stage {self.stage}: reward {self.reward_mean:.3f}, "
            f"correct {100 * self.correct_rate:.0f} %, beats the reference {fast} ({self.speedups})"
        ]
        if number := self.compared.num_compared:
            differing = self.compared.num_differing
            lines.append(f"{number} answers were judged fast and in full: {differing} other verdicts")
        return lines
