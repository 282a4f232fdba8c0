"""Faults of the reward and of the data behind it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from benchmarks.doctor import prompts
from benchmarks.doctor.faults.ways import ANSWER, FAST, SLOW, WATCH, graders, hidden, way, ways
from benchmarks.doctor.scene import Fault, Injection
from benchmarks.doctor.toys import EASY, HOPELESS, MASTER

REWARDS: tuple[Fault, ...] = (
    Fault(
        cause="reward-constant",
        what="Every answer gets the same reward.",
        variants=ways(
            way("half", "grpo", reward=graders("always_half", WATCH)),
            way("right", "grpo", reward=graders("always_right")),
            way("answered", "gspo", reward=graders("answered", truncated="grade")),
        ),
    ),
    Fault(
        cause="parser-broken",
        what="The grader looks for a marker that no answer has.",
        variants=ways(
            way("marker", "grpo", reward=graders({"name": "answer", "options": {"marker": "Answer:"}})),
            way("tag", "gspo", reward=graders({"name": "answer", "options": {"marker": "<answer>"}})),
            way("last-line", "dapo", reward=graders({"name": "answer", "options": {"marker": "last-line"}})),
        ),
    ),
    Fault(
        cause="reward-pays-length",
        what="The reward grows with the answer's length.",
        variants=ways(
            way(
                "mixed",
                {"name": "grpo", "kl_coef": 0.0},
                reward=graders("right_and_long", WATCH, truncated="grade"),
                sampling={"max_new_tokens": 112},
                trainer=FAST,
            ),
            way(
                "length",
                {"name": "grpo", "kl_coef": 0.0},
                reward=graders("long_is_good", WATCH, truncated="grade"),
                sampling={"max_new_tokens": 112},
                trainer=FAST,
            ),
            way(
                "lines",
                "gspo",
                reward=graders("counts_lines", WATCH, truncated="grade"),
                sampling={"max_new_tokens": 112},
                trainer=FAST,
            ),
        ),
    ),
    Fault(
        cause="format-reward-dead",
        what="A format reward that no answer, or every answer, earns.",
        variants=hidden(
            way(
                "never",
                "grpo",
                reward=graders(ANSWER, {"name": "format", "options": {"tags": ["think", "answer"]}}),
            ),
            way("json", "dapo", reward=graders(ANSWER, {"name": "format", "options": {"json_keys": ["a"]}})),
        ),
    ),
    Fault(
        cause="overlong-penalty-too-strong",
        what="The penalty for long answers is worth more than being right.",
        variants=ways(
            way(
                "hard",
                {"name": "grpo", "shaping": {"name": "hard-overlong", "penalty": 4.0, "maximum": 20}},
                trainer=FAST,
            ),
            way(
                "soft",
                {"name": "dapo", "reward": {"right": 0.2, "wrong": 0.0}, "overlong_buffer": 50},
                trainer=FAST,
            ),
        ),
    ),
    Fault(
        cause="grader-faults",
        what="The grader raises or does not return for many answers.",
        variants=ways(
            way("raises", "grpo", reward=graders("fails_without_marker", max_ungraded_share=1.0)),
            way("negative", "dapo", reward=graders("fails_on_negative", max_ungraded_share=1.0)),
            way("slow", "gspo", reward=graders(SLOW, max_ungraded_share=1.0, timeout=0.05)),
        ),
    ),
)

DATA: tuple[Fault, ...] = (
    Fault(
        cause="gold-wrong",
        what="A large share of the gold answers is wrong.",
        variants=hidden(
            way("off-by-one", "grpo", Injection(prompts=prompts.gold_off(0.5))),
            way("unsigned", "dapo", Injection(prompts=prompts.gold_unsigned)),
        ),
    ),
    Fault(
        cause="duplicate-prompts",
        what="A handful of prompts, over and over.",
        variants=hidden(
            way("ids", "grpo", Injection(prompts=prompts.copies(4, own_ids=True))),
            way("same-ids", "gspo", Injection(prompts=prompts.copies(5, own_ids=False))),
        ),
    ),
    Fault(
        cause="data-too-hard",
        what="Questions that the model cannot answer.",
        variants=ways(
            way(
                "long-sums",
                "grpo",
                data={"task": None, "files": [HOPELESS], "train_prompts": None},
                sampling={"max_new_tokens": 120},
            ),
            way("letters", "gspo", data={"task": "letters"}),
        ),
    ),
    Fault(
        cause="data-mastered",
        what="Questions that the model always answers.",
        variants=ways(
            way(
                "grpo",
                "grpo",
                model={"path": MASTER},
                data={"task": None, "files": [EASY], "train_prompts": None},
            ),
            way(
                "gspo",
                "gspo",
                model={"path": MASTER},
                data={"task": None, "files": [EASY], "train_prompts": None},
            ),
        ),
    ),
)
