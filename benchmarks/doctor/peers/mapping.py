"""What counts as finding a fault, for packages that know symptoms and not these faults. Meant to be generous.

A package has found a fault where one of the checks named here spoke at warning or above. That is a statement
about a symptom which the fault has, or may have: a plateau counts for every fault, since a run with a
fault that has stopped learning is rightly said to have. It has named the cause where the text of such a
finding, remedies included, holds the words of ``WORDS``, wherever they stand.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

ALWAYS = ("rldoctor:plateau", "rldoctor:reward_hacking")
GROUPS = ("rldoctor:advantage_collapse", "rlprobe:DEGENERATE_GROUPS", "rlprobe:ADV_COLLAPSE")
SPREAD = ("rlprobe:REWARD_STD_DEATH", "rlwatch:reward_hacking", "rlwatch:advantage_variance")
GRADIENT = ("rldoctor:gradient_pathology", "rlprobe:GRAD_PATHOLOGY", "rlwatch:gradient_norm_spike")
DRIFT = ("rldoctor:kl_drift", "rlprobe:KL_BLOWUP", "rlwatch:kl_explosion")
ENTROPY = ("rldoctor:entropy_collapse", "rlprobe:ENTROPY_COLLAPSE", "rlwatch:entropy_collapse")
CLIP = ("rldoctor:clip_saturation", "rlprobe:CLIP_SATURATION")
LENGTH = ("rldoctor:length_pathology", "rlprobe:REWARD_HACK_LENGTH")
CUT = ("rldoctor:length_pathology", "rlprobe:TRUNCATION_STARVE", "rlprobe:REPETITION_SPIRAL")
REWARD = ("rlwatch:reward_hacking", "rlwatch:reward_mean_drift")
LOSS = ("rlwatch:loss_nan",)

CHECKS: dict[str, tuple[str, ...]] = {
    "old-logprobs-recomputed": (*DRIFT, *GRADIENT, *ENTROPY, *CLIP),
    "eos-masked": (*CUT, *LENGTH, *DRIFT),
    "temperature-mismatch": (*DRIFT, *CLIP, *ENTROPY, *GRADIENT),
    "retokenized": (*DRIFT, *CLIP, *GRADIENT),
    "micro-batch-mean": (*LENGTH, *GRADIENT, *DRIFT),
    "learning-rate-too-high": (*GRADIENT, *DRIFT, *ENTROPY, *CLIP, *LOSS, *GROUPS, *SPREAD),
    "clip-removed": (*GRADIENT, *DRIFT, *ENTROPY, *CLIP, *LOSS),
    "wrong-kl-sign": (*DRIFT, *GRADIENT),
    "gspo-clip-too-wide": (*CLIP, *DRIFT, *GRADIENT),
    "sapo-temperature-too-large": (*CLIP, *GRADIENT, *DRIFT),
    "critic-frozen": ("rlprobe:VALUE_DIVERGENCE", "rlwatch:advantage_variance"),
    "stale-sampler": (*CLIP, *DRIFT, *GRADIENT),
    "weights-never-synced": (*CLIP, *DRIFT, *GRADIENT),
    "group-too-small": (*GROUPS, *SPREAD),
    "temperature-too-low": (*GROUPS, *SPREAD, *ENTROPY),
    "max-length-too-short": (*CUT, *GROUPS),
    "double-bos": (),
    "reward-constant": (*GROUPS, *SPREAD, "rldoctor:gradient_pathology", "rldoctor:reward_composition"),
    "parser-broken": (*GROUPS, *SPREAD, "rldoctor:gradient_pathology", "rldoctor:reward_composition"),
    "reward-pays-length": (*LENGTH, *CUT, *REWARD),
    "format-reward-dead": ("rldoctor:reward_composition", "rlprobe:FORMAT_GAMING"),
    "overlong-penalty-too-strong": (*LENGTH, *REWARD, "rldoctor:reward_composition"),
    "grader-faults": (),
    "gold-wrong": (*GROUPS,),
    "duplicate-prompts": (*GROUPS, *ENTROPY),
    "data-too-hard": (*GROUPS, *SPREAD, "rldoctor:gradient_pathology"),
    "data-mastered": (*GROUPS, *SPREAD, "rldoctor:gradient_pathology", *ENTROPY),
}

WORDS: dict[str, str] = {
    "old-logprobs-recomputed": r"old.?log|recomput",
    "eos-masked": r"\beos\b|end.?token|stop token",
    "temperature-mismatch": r"mismatch",
    "retokenized": r"re-?tokeni[sz]|tokeni[sz]er",
    "micro-batch-mean": r"micro.?batch|accumulation|aggregat",
    "learning-rate-too-high": r"(lower|reduce|decrease|drop|halve|cut).{0,40}(learning rate|\blr\b)|too high",
    "clip-removed": r"(add|restore|enable|no|without) .{0,20}clip|clip.{0,30}(missing|off|disabled|never)",
    "wrong-kl-sign": r"\bsign\b",
    "gspo-clip-too-wide": r"clip.{0,40}(never|too wide|too large)|gspo",
    "sapo-temperature-too-large": r"\btau\b|\bgate|sapo",
    "critic-frozen": r"critic|value.?(head|function|model|net|loss|estimat)",
    "stale-sampler": r"stale|lag\b|off-policy",
    "weights-never-synced": r"sync|stale|lag\b",
    "group-too-small": r"group size|num_generations",
    "temperature-too-low": r"(raise|increase|higher).{0,40}temperature",
    "max-length-too-short": r"(raise|increase).{0,40}(max|length|tokens)|length cap|length limit",
    "double-bos": r"\bbos\b|start token|template",
    "reward-constant": r"constant|reward (function|std|variance)|verifier|grader",
    "parser-broken": r"verifier|grader|parser|extract",
    "reward-pays-length": r"length",
    "format-reward-dead": r"dead|never|component",
    "overlong-penalty-too-strong": r"penalt",
    "grader-faults": r"grader|verifier",
    "gold-wrong": r"gold|label|ground truth|verifier",
    "duplicate-prompts": r"duplicate|diversity|more prompts",
    "data-too-hard": r"too hard|difficulty|easier",
    "data-mastered": r"too easy|saturat|outgrown|harder|difficulty",
}


def checks_for(cause: str, tool: str) -> frozenset[str]:
    """The checks of a package that count as finding the fault."""
    named = (*ALWAYS, *CHECKS[cause])
    return frozenset(name.partition(":")[2] for name in named if name.startswith(f"{tool}:"))
