"""Metrics of the trained tokens: advantage, entropy, KL, and the sampler against the trainer."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

from trimtab.catalog.spec import Band, MetricSpec, Section, others

TRAINED = "trained tokens, over all updates of the step"
JOINED = "sum and count"


def token_metric(
    key: str,
    unit: str,
    formula: str,
    meaning: str,
    *,
    mask: str = TRAINED,
    reduction: str = JOINED,
    read_with: tuple[str, ...] = (),
    healthy: str = "",
) -> MetricSpec:
    """An entry over trained tokens, joined by sum and count where nothing else is said."""
    return MetricSpec(
        key=key,
        unit=unit,
        formula=formula,
        mask=mask,
        reduction=reduction,
        meaning=meaning,
        read_with=read_with,
        healthy=healthy,
    )


SIGNALS = Section(
    "Signal",
    "What there is to learn from. A loss near zero says nothing; these do.",
    (
        token_metric(
            "advantage/token",
            "advantage",
            "mean A",
            "Mean advantage; about 0 for group baselines of equal lengths.",
        ),
        token_metric(
            "advantage/absolute",
            "advantage",
            "mean |A|",
            "Mean size of the advantages: 0 means that nothing is learned, whatever the loss says.",
            read_with=("groups/uniform", "optimizer/grad_norm", "loss/total"),
            healthy="above 0.1 with rewards scaled by their std",
        ),
        token_metric("advantage/max", "advantage", "max |A|", "The largest advantage.", reduction="maximum"),
        token_metric(
            "advantage/positive",
            "share",
            "mean 1[A > 0]",
            "Share of tokens that are pushed up.",
            read_with=("advantage/negative",),
        ),
        token_metric(
            "advantage/negative",
            "share",
            "mean 1[A < 0]",
            "Share of tokens that are pushed down; the rest has A = 0.",
            read_with=("advantage/positive",),
        ),
        token_metric(
            "advantage/silent",
            "share",
            "tokens left out / trained tokens",
            "Share of tokens that the update left out because they have exactly no gradient (skip_silent). "
            "Entropy, ratio, gate and KL are then taken over the rest.",
            read_with=("groups/uniform", "advantage/absolute"),
        ),
        token_metric(
            "policy/entropy",
            "nats",
            "mean of -sum_v p log p over the whole vocabulary, at the sampling temperature",
            "How undecided the policy is. Judge it against the run's own start.",
            read_with=("groups/duplicates", "reward/outcome", "clip/high"),
            healthy=(
                "falling slowly or steady; below a tenth of its start is a collapse, above thrice is noise"
            ),
        ),
    ),
)


def _kl(name: str, formula: str, meaning: str, healthy: str, read_with: tuple[str, ...]) -> MetricSpec:
    return token_metric(f"kl/{name}", "nats a token", formula, meaning, healthy=healthy, read_with=read_with)


DRIFT = ("reward/outcome", "policy/entropy", "length/mean")
STEP = ("ratio/token_std", "clip/removed", "optimizer/learning_rate")
KL = Section(
    "KL",
    (
        "Always per token, from token log-probabilities, unclamped; a value too large for a float is named, "
        "not hidden. The tokens were drawn by the old policy: KL(old || new) is estimated as it stands, "
        "KL(new || ref) exactly only while new is old."
    ),
    (
        _kl(
            "old_k1",
            "mean (old - new)",
            "How far the updates of the step moved the policy. May be negative in a sample.",
            "0 at the first update; below about 0.02 after",
            STEP,
        ),
        _kl(
            "old_k3",
            "mean (r - 1 - log r), r = new/old",
            "The same, never negative and with less noise.",
            "0 at the first update; below about 0.02 after",
            STEP,
        ),
        _kl(
            "reference_k1",
            "mean (new - ref)",
            "How far the policy has left the reference model.",
            "slow growth; fast growth with rising reward is drift",
            DRIFT,
        ),
        _kl(
            "reference_k3",
            "mean (q - 1 - log q), q = ref/new",
            (
                "The same, never negative; explodes where the policy all "
                "but excludes what the reference expects."
            ),
            "slow growth; fast growth with rising reward is drift",
            DRIFT,
        ),
    ),
)


EXACT = "sampler and trainer in float32"
ROUNDED = "a sampler in bfloat16 or another engine"


def _mismatch(
    name: str,
    unit: str,
    formula: str,
    meaning: str,
    *,
    exact: tuple[float, float] | None = None,
    rounded: tuple[float, float] | None = None,
    healthy: str = "",
    reduction: str = JOINED,
    source: str = "",
) -> MetricSpec:
    pairs = ((exact, EXACT), (rounded, ROUNDED))
    bands = tuple(Band(*pair, when) for pair, when in pairs if pair is not None)
    return replace(
        token_metric(
            f"mismatch/{name}",
            unit,
            formula,
            meaning,
            mask="trained tokens sampled by the very weights that annotate them",
            reduction=reduction,
            healthy=healthy,
            read_with=others(f"mismatch/{name}", "mismatch/k3", "ratio/token", "staleness/max"),
        ),
        bands=bands,
        source=source,
    )


MISMATCH = Section(
    "Sampler against trainer",
    "The same tokens under the same weights, once as the sampler and once as the trainer computes them. "
    "Carried groups, which older weights sampled, are left out.",
    (
        _mismatch(
            "probability",
            "probability",
            "mean |p_trainer - p_sampler|",
            "Mean difference of the probabilities of what was sampled.",
            exact=(1e-5, 1e-3),
            rounded=(5e-3, 1e-2),
            source="the second band: verl's FAQ on training/rollout_probs_diff_mean",
        ),
        _mismatch(
            "probability_max",
            "probability",
            "max |p_trainer - p_sampler|",
            "Largest difference of two probabilities.",
            exact=(1e-3, 1e-1),
            reduction="maximum",
        ),
        _mismatch(
            "logprob",
            "nats",
            "mean |trainer - sampler|",
            "Mean difference of logs.",
            exact=(1e-4, 1e-2),
            rounded=(2e-2, 1e-1),
        ),
        _mismatch(
            "logprob_max",
            "nats",
            "max |trainer - sampler|",
            "Largest difference of two log-probabilities.",
            exact=(1e-2, 1e-1),
            reduction="maximum",
        ),
        _mismatch(
            "k1",
            "nats a token",
            "mean (sampler - trainer)",
            "KL(sampler || trainer) as it stands; may be negative in a sample. Far above 0, the trainer "
            "finds the sampler's answers unlikely: another temperature, a filter, or re-tokenised text.",
            healthy="near 0, of either sign; read its size by mismatch/k3",
        ),
        _mismatch(
            "k3",
            "nats a token",
            "mean (q - 1 - log q), q = trainer/sampler",
            "KL(sampler || trainer), never negative.",
            exact=(1e-6, 1e-3),
            rounded=(1e-3, 1e-2),
        ),
        _mismatch(
            "ess",
            "share",
            "(sum q)^2 / (n sum q^2), q = trainer/sampler",
            "Effective share of tokens if the sampler's were reweighted to the trainer's policy.",
            exact=(0.999, 0.99),
            rounded=(0.99, 0.9),
            reduction="three sums",
        ),
    ),
)


def _routing(name: str, formula: str, meaning: str, healthy: str) -> MetricSpec:
    return token_metric(
        f"routing/{name}",
        "share",
        formula,
        meaning,
        mask=TRAINED + ", of evenly spread answers up to one micro-batch a step; mixtures of experts only",
        read_with=others(f"routing/{name}", "routing/agreement", "ratio/token_std", "ratio/sequence_std"),
        healthy=healthy,
    )


ROUTING = Section(
    "Routing",
    "A mixture of experts may send a token to other experts after an update: its ratio then jumps, although "
    "the policy hardly moved. This is why sequence ratios suit such models (GSPO, arXiv 2507.18071).",
    (
        _routing(
            "agreement",
            "mean over tokens and layers of |old experts and new experts| / experts a token",
            "How many of the experts that the old policy chose for a token the updated policy chooses again.",
            "1 at the first update of a step; above 0.9 after",
        ),
        _routing(
            "tokens_changed",
            "mean 1[some layer's experts differ]",
            "Share of tokens for which at least one expert of one layer has changed.",
            "0 at the first update of a step; grows with the number of layers",
        ),
    ),
)

SECTIONS = (SIGNALS, KL, ROUTING, MISMATCH)
