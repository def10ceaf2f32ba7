"""A checkpoint beside the promoted one, on the same problems → it takes the name, or does not."""

from __future__ import annotations

from flows.evaluate import evaluate
from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import EvaluateConfig, PolicyConfig, asked
from kernel_core.errors import ConfigError
from kernel_core.evaluation.promotion import promoted_policy, trained_policy
from kernel_core.runs.holds import release
from kernel_core.runs.resolve import choose_weights, locate_checkpoint
from kernel_core.runs.run_folder import Run, find_run
from kernel_core.runs.stage_record import sealed_digest
from kernel_core.store import Store
from tasks.promote import pass_gate


@stage_flow("promote", run_name="promotion check: {candidate}")
def promote(
    config: EvaluateConfig,
    candidate: str = "quickstart",
    run: str = "promoted",
    root: str = "runs",
    digest: str | None = None,
) -> None:
    """Evaluate a run's checkpoint and the promoted one; promote it if it is clearly better.

    Until one is promoted, the policy that the candidate's training began with is the one to beat.

    Args:
        config: Problems and judge. The policy is that of the candidate's training.
        candidate: A run's name (its newest checkpoint), `run@step` or `run@best`.
        run: The name that is given, `checkpoint=promoted`: a folder under the root.
        root: Local folder or any fsspec URI, the same for every stage and worker.
        digest: Digest of the candidate's content; another content is refused. Empty: not compared.
    """
    with running(run, root) as here:
        checkpoint = locate_checkpoint(root, candidate)
        if digest is not None and (now := sealed_digest(Store(checkpoint))) != digest:
            raise ConfigError(
                f"{candidate} has the digest {now[:12]}, but {digest[:12]} is to be checked: it was replaced "
                "since; train again, or leave digest out to check what is there"
            )
        trained = find_run(root, candidate.partition("@")[0])
        policy = trained_policy(trained) or config.policy
        promoted = promoted_policy(here)
        if promoted is None:
            before = _scored(config, policy, trained, None)
        else:
            before = _scored(config, promoted, here, locate_checkpoint(root, run))
        after = _scored(config, policy, trained, checkpoint)
        pass_gate(here, checkpoint, policy, before, after)
        release(trained.store, checkpoint)


def _scored(config: EvaluateConfig, policy: PolicyConfig, run: Run, checkpoint: str | None) -> Store:
    """The scorecard of a policy in its own run, where its index is; made once for each set of weights."""
    weights = choose_weights(run, policy, checkpoint)
    name = f"gate-{sealed_digest(Store(weights))[:12] if weights is not None else 'base'}"
    evaluate(asked(config, policy, checkpoint), run=run.name, root=run.root, name=name)
    return run.store.child(name)
