# Short names for what `dojo` does, in the environment of README.md; `.venv/bin/just` lists them.

dojo := ".venv/bin/dojo"
root := env("DOJO_ROOT", "runs")

[private]
default:
    @just --list --unsorted

# The pictures of README.md, from real output
pictures:
    .venv/bin/python docs/pictures/make.py

# Format, lint, types, layers and the fast tests
check: lint test

# Format, lint, types and layers
lint:
    .venv/bin/ruff format --check .
    .venv/bin/ruff check .
    .venv/bin/mypy
    .venv/bin/lint-imports
    {{ dojo }} deploy --dry-run

# The fast tests, or those that ARGS choose
test *ARGS:
    .venv/bin/pytest -q -n 3 --dist loadfile --durations=10 -m "not slow and not gpu and not exhaustive" {{ ARGS }}

# What a change did to draws, presets, judge code and verdicts: just golden [draws presets judge verdicts] [--write]
golden *ARGS:
    .venv/bin/python tests/golden/golden.py {{ ARGS }}

# Train a preset of prefect.yaml: just train learn run=mine steps=20
train PRESET="learn" *SETTINGS:
    {{ dojo }} train {{ PRESET }} {{ SETTINGS }}

# Train with Kevin's learning rule
train-kevin *SETTINGS:
    {{ dojo }} train kevin {{ SETTINGS }}

# Train with three retrieved exemplars in each first prompt
train-raicl *SETTINGS:
    {{ dojo }} train learn run=raicl rollout.exemplars=3 {{ SETTINGS }}

# Run the command of a run again; it goes on from what is done
resume RUN:
    {{ dojo }} runs resume {{ RUN }} --root {{ root }}

# Ask a run to stop; it goes on later
stop RUN:
    {{ dojo }} runs stop {{ RUN }} --root {{ root }}

# One run: stages, figures, files
status RUN:
    {{ dojo }} runs show {{ RUN }} --root {{ root }}

# Every run and whether it is alive
list:
    {{ dojo }} runs list --root {{ root }}

# The log of a run, and what is added to it
logs RUN:
    {{ dojo }} runs logs {{ RUN }} --follow --root {{ root }}

# The newest figures of a run, every few seconds
watch-metrics RUN:
    {{ dojo }} runs watch {{ RUN }} --root {{ root }}

# Curves of every run, or of one
tensorboard RUN="" PORT="6006":
    {{ dojo }} runs tensorboard {{ RUN }} --port {{ PORT }} --root {{ root }}

# Evaluate a run's newest checkpoint on held-out problems
eval RUN *SETTINGS:
    {{ dojo }} evaluate run={{ RUN }}-eval checkpoint={{ RUN }} root={{ root }} {{ SETTINGS }}

# Build a corpus and its index
build-rag-index RUN="corpus" *SETTINGS:
    {{ dojo }} ingest run={{ RUN }} root={{ root }} {{ SETTINGS }}
    {{ dojo }} index run={{ RUN }} root={{ root }}

# … of Triton kernels from the public corpora, which are downloaded
build-rag-index-triton RUN="corpus-triton" *SETTINGS:
    {{ dojo }} ingest run={{ RUN }} root={{ root }} sources=[generator,kernelbook] {{ SETTINGS }}
    {{ dojo }} index run={{ RUN }} root={{ root }}

# … of CUDA kernels from the public corpora, which are downloaded
build-rag-index-cuda RUN="corpus-cuda" *SETTINGS:
    {{ dojo }} ingest run={{ RUN }} root={{ root }} sources=[sakana] {{ SETTINGS }}
    {{ dojo }} index run={{ RUN }} root={{ root }}

# Server, workers and deployments on this machine
deploy-local PORT="4200":
    {{ dojo }} deploy --local --port {{ PORT }}

# Judge one kernel
judge PROBLEM KERNEL *OPTIONS:
    {{ dojo }} judge --problem {{ PROBLEM }} --kernel {{ KERNEL }} {{ OPTIONS }}

# The Prefect server and its UI
ui PORT="4200":
    {{ dojo }} ui --port {{ PORT }}

# Teach a Hugging Face model our kernels and measure it on KernelBench: just cold-start-kernelbench FOLDER
cold-start-kernelbench MODEL WORK="carryover" LIMIT="200" SAMPLES="8" MINUTES="11.5":
    .venv/bin/python benchmarks/carryover.py draw --work {{ WORK }} --modules 16000 --generated 1800 --conversations 56000 --seed 110
    .venv/bin/python benchmarks/carryover.py teach --work {{ WORK }} --model {{ MODEL }} --steps 740 --minutes {{ MINUTES }} --conversations-file {{ WORK }}/conversations.jsonl.gz --minibatch-tokens 36000 --lr 5e-5
    .venv/bin/python benchmarks/carryover.py answer --model {{ MODEL }} --taught {{ WORK }}/cold_start --limit {{ LIMIT }} --samples {{ SAMPLES }} --answers {{ WORK }}/answers.jsonl.gz
    .venv/bin/python benchmarks/carryover.py judge --limit {{ LIMIT }} --samples {{ SAMPLES }} --answers {{ WORK }}/answers.jsonl.gz --judged {{ WORK }}/judged.jsonl --minutes 600

# Train four methods on the same judged answers and measure each on all groups of problems: just arms FOLDER
arms COLD_START SUITES="modules" HELD_OUT="" WORK="arms" SEEDS="0 1 2" CANDIDATES="2048" LIMIT="100" SAMPLES="4":
    #!/usr/bin/env bash
    set -euo pipefail
    judged=()
    for seed in {{ SEEDS }}; do
      for arm in frozen expert_iteration rl_shuffled rl; do
        .venv/bin/python benchmarks/carryover_arms.py --arm $arm --seed $seed --model {{ COLD_START }} --suite {{ SUITES }} --work {{ WORK }} --candidates {{ CANDIDATES }} --minutes 600
        for group in kernelbench modules unseen {{ HELD_OUT }}; do
          file={{ WORK }}/$arm-$seed-$(basename $group)
          .venv/bin/python benchmarks/carryover.py answer --suite $group --model {{ COLD_START }} --taught {{ WORK }}/$arm-$seed/policy --limit {{ LIMIT }} --samples {{ SAMPLES }} --seed $seed --answers $file.jsonl.gz
          .venv/bin/python benchmarks/carryover.py judge --suite $group --limit {{ LIMIT }} --samples {{ SAMPLES }} --answers $file.jsonl.gz --judged $file.jsonl --minutes 600
          judged+=("$arm-$seed=$file.jsonl")
        done
      done
    done
    .venv/bin/python benchmarks/carryover.py report --against frozen --judged "${judged[@]}"