"""AdamW over float32 master weights, for a policy and, where there is one, its critic.

A parameter in bfloat16 has a float32 copy that is optimised in its place: eight bits of mantissa lose an
update of 1e-6 whole. Gradients of micro-batches add up in float32 too. A parameter that is float32
already is its own master.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trimtab.errors import RunError
from trimtab.trainer.config import TrainerConfig

MOMENTS = ("exp_avg", "exp_avg_sq")

Part = Callable[[Tensor], Tensor]
"""From a parameter or gradient of a module to what this process holds of it, detached."""


def all_of(tensor: Tensor) -> Tensor:
    """The part of a process that holds everything."""
    return tensor


def norm_of(tensors: Sequence[Tensor]) -> float:
    """The norm of these tensors taken as one vector."""
    return float(nn.utils.get_total_norm(tensors))


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """The weights of one owner ("policy" or "critic"): parameters, masters, and their learning rate.

    Where parameters are shards of torch.distributed, ``part`` gives this process's rows of each, and masters,
    gradients and moments are plain tensors of these rows. trained_only: the rest never changes and is known
    elsewhere (the base of adapters), so that it is no part of the state.
    """

    name: str
    learning_rate: float
    module: nn.Module
    parameters: Mapping[str, nn.Parameter]
    masters: Mapping[str, Tensor]
    part: Part = all_of
    trained_only: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        module: nn.Module,
        learning_rate: float,
        part: Part = all_of,
        *,
        trained_only: bool = False,
    ) -> Owned:
        """Every trainable parameter of ``module``, tied ones once."""
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        masters = {key: _master(parameter, part) for key, parameter in parameters.items()}
        return cls(name, learning_rate, module, parameters, masters, part, trained_only)

    @property
    def size(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters.values())

    def everything(self) -> dict[str, Tensor]:
        """The module's weights by name, tied ones once: masters, and what is not trained as it is."""
        if self.trained_only:
            return dict(self.masters)
        return {
            name: self.masters[name] if name in self.masters else self.part(p.detach())
            for name, p in self.module.named_parameters()
        }

    def absorb(self) -> None:
        """Add what one backward pass left in parameters that are not their own masters to these."""
        for name, parameter in self.parameters.items():
            master = self.masters[name]
            if master is parameter or parameter.grad is None:
                continue
            gradient = self.part(parameter.grad).to(master.dtype)
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    def clear(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.grad = self.masters[name].grad = None

    def gradients(self) -> dict[str, Tensor]:
        """Those that exist, by name."""
        return {name: master.grad for name, master in self.masters.items() if master.grad is not None}

    @torch.no_grad()
    def clip(self, max_norm: float, norm: Callable[[Sequence[Tensor]], float] = norm_of) -> float | None:
        """Scale the gradients down to ``max_norm``; their norm before that, None where there is none."""
        gradients = list(self.gradients().values())
        if not gradients:
            return None
        found = norm(gradients)
        if found > max_norm:
            for gradient in gradients:
                gradient.mul_(max_norm / (found + 1e-6))
        return found

    @torch.no_grad()
    def spread(self) -> None:
        """Copy the masters into the parameters that are not their own, rounding as these need it."""
        for name, parameter in self.parameters.items():
            if self.masters[name] is not parameter:
                self.part(parameter.detach()).copy_(self.masters[name])


class Optimizer:
    """AdamW for all owners. Only weights that got a gradient move, and only they decay."""

    def __init__(self, owners: list[Owned], config: TrainerConfig) -> None:
        self.owners = owners
        groups = [
            {"params": tensors, "lr": owned.learning_rate, "weight_decay": decay, "owned": owned}
            for owned in owners
            for tensors, decay in _by_decay(owned, config.weight_decay)
        ]
        self.adamw = torch.optim.AdamW(groups, betas=config.betas, eps=1e-8, fused=True)

    def step(self, factor: float) -> None:
        """One step at ``factor`` times each owner's learning rate."""
        for group in self.adamw.param_groups:
            group["lr"] = group["owned"].learning_rate * factor
        self.adamw.step()
        for owned in self.owners:
            owned.spread()

    def moments(self) -> dict[str, Tensor]:
        """AdamW's state of every weight that has one: ``owner/moment/parameter`` -> tensor."""
        found: dict[str, Tensor] = {}
        for owned in self.owners:
            for name, master in owned.masters.items():
                for moment, tensor in self.adamw.state.get(master, {}).items():
                    found[f"{owned.name}/{moment}/{name}"] = tensor
        return found

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Take back what ``moments`` gave. Raises RunError when it belongs to other weights."""
        self.adamw.state.clear()
        left = dict(moments)
        for owned in self.owners:
            for name, master in owned.masters.items():
                stored = {m: left.pop(f"{owned.name}/{m}/{name}", None) for m in (*MOMENTS, "step")}
                if any(tensor is None for tensor in stored.values()):
                    continue
                self.adamw.state[master] = {
                    m: tensor.to(master.device) for m, tensor in stored.items() if tensor is not None
                }
        if left:
            raise RunError(
                f"the checkpoint holds optimizer state of {next(iter(left))!r}, which this run does not "
                "train; resume with the model and trainer settings it was written with"
            )

    def describe(self, config: TrainerConfig) -> str:
        """One line an owner: how much it trains, at which rate."""
        after = "" if not config.warmup_updates else f" after {config.warmup_updates} warm-up updates"
        common = (
            f"{config.schedule}{after}, AdamW betas {config.betas[0]:g} {config.betas[1]:g}, "
            f"weight decay {config.weight_decay:g}, gradient norm <= {config.max_grad_norm:g}"
        )
        return "\n".join(
            f"{owned.name}: {owned.size:,} parameters in {len(owned.parameters)} tensors, "
            f"learning rate {owned.learning_rate:g} {common}{_alone(owned, config)}"
            for owned in self.owners
        )


def _alone(owned: Owned, config: TrainerConfig) -> str:
    if owned.name != "critic" or not config.critic_warmup_updates:
        return ""
    return f"; the run's first {config.critic_warmup_updates} updates train it alone"


def _master(parameter: nn.Parameter, part: Part) -> Tensor:
    whole = part is all_of
    if parameter.dtype in (torch.float32, torch.float64):
        return parameter if whole else part(parameter.detach()).requires_grad_()
    return part(parameter.detach()).to(torch.float32).requires_grad_()


def _by_decay(owned: Owned, decay: float) -> list[tuple[list[Tensor], float]]:
    matrices = [master for master in owned.masters.values() if master.ndim >= 2]
    vectors = [master for master in owned.masters.values() if master.ndim < 2]
    return [(tensors, rate) for tensors, rate in ((matrices, decay), (vectors, 0.0)) if tensors]
