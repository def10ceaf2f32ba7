"""What a finished flow leaves on the terminal."""

from kernel_core.evaluation.metrics import Conditions, Outcome, ProblemOutcomes, make_scorecard
from kernel_core.records import Verdict
from kernel_core.report.terminal import headline


def test_judges_that_were_taken_out_stand_below_the_scorecard():
    made = Conditions(
        policy_version="p",
        gym_version="g",
        device="cuda",
        gpu="H200",
        baseline="fair",
        tolerance="measured",
        versions={},
        taken_out=("GPU 3: 4 fresh judges failed the probe [Errno 27]",),
    )
    sample = (Outcome(turn=0, verdict=Verdict.WRONG),)
    outcomes = ProblemOutcomes(problem_id="a", sha256="a", family="softmax", level=None, samples=(sample,))
    table, work, line = headline(make_scorecard([outcomes], (1,), (1.0,), made), "suite dojo, split held_out")
    assert table.title.startswith("scorecard of p: suite dojo, split held_out\n1 problems, 1 answers; gym g;")
    assert work.row_count == 0, "nothing is correct"
    assert line.replace("\\", "") == "taken out: GPU 3: 4 fresh judges failed the probe [Errno 27]"
