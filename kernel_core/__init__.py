"""Judge, training and retrieval of Kernel Dojo, usable without Prefect.

The stages, in order: `corpus` (ingest), `retrieval` (index), `learn` (cold start, then RL through the
curriculum), `scorecard` (evaluate) and `selection` (best of N). Everything that crosses a stage is a
record of `records`; the settings of every stage are models of `config`.
"""

__version__ = "0.1.0"
