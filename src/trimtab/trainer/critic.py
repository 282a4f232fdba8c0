"""The critic: what reward is still to come, seen from before each token.

``values_T[t]`` is read from the state that predicts token t, so it knows the prompt and the answer up to
t - 1 and not the token itself. The value after an answer's last token is its ``bootstrap_S``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from trimtab.models import LoadedModel

FIRST_SPREAD = 1e-3
"""Standard deviation of a fresh value head's weights, over sqrt(hidden size): first values are near 0."""


class Critic(nn.Module):
    """A linear value head, on the policy's states or on those of a trunk of its own.

    trunk: None reads the policy's states; ``detached`` then keeps the value loss out of the policy.
    The head is float32 (float64 for a float64 model), whatever dtype the states are in.
    """

    def __init__(
        self, hidden_size: int, *, trunk: nn.Module | None, detached: bool, dtype: torch.dtype, seed: int
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.detached = detached
        self.head = nn.Linear(hidden_size, 1, dtype=torch.promote_types(dtype, torch.float32))
        random = torch.Generator().manual_seed(seed % 2**63)
        first = torch.randn(1, hidden_size, generator=random) * FIRST_SPREAD / hidden_size**0.5
        with torch.no_grad():
            self.head.weight.copy_(first)
            self.head.bias.zero_()

    def states(self, input_ids_BL: Tensor, policy_states: Tensor) -> Tensor:
        """The hidden states [B * L, H] that this critic reads, given those of the policy."""
        if self.trunk is None:
            return policy_states.detach() if self.detached else policy_states
        return self.trunk(input_ids=input_ids_BL, use_cache=False).last_hidden_state.flatten(0, 1)

    def values(self, states: Tensor) -> Tensor:
        """[N, H] -> [N], in units of reward."""
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.to(self.head.weight.dtype)).squeeze(-1)


def value_head(model: LoadedModel, *, detached: bool, seed: int) -> Critic:
    """A critic on the policy's own states."""
    return _critic(model, trunk=None, detached=detached, seed=seed)


def value_model(model: LoadedModel, *, seed: int) -> Critic:
    """A critic with a trunk of its own: a copy of ``model`` as it is now, without its output layer."""
    return _critic(model, trunk=copy.deepcopy(model.module.base_model).eval(), detached=True, seed=seed)


def _critic(model: LoadedModel, *, trunk: nn.Module | None, detached: bool, seed: int) -> Critic:
    hidden_size = int(model.module.config.get_text_config().hidden_size)
    critic = Critic(hidden_size, trunk=trunk, detached=detached, dtype=model.dtype, seed=seed)
    return critic.to(model.device)
