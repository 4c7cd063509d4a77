"""PlanByArch: what the plan of a package for several architectures subclasses. Imports neither torch nor cutlass.

A generated plan gives, as class attributes:

    name     "gemm_bf16"
    archs    ("sm_90a", "sm_100a"): in the order of the spec; module plan_sm_90a, next to the plan's own, has the Plan
             of the first, and so on

A launch runs the plan for the architecture of the device that its tensors are on. What else is read of the plan, its
arguments or the reference, is that of the current device, or of the first architecture where no kernel is for it: the
same for all but for tilings.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from cutegen.runtime.base import BasePlan, Table, current_device, find_arch
from cutegen.runtime.torch_op import register_plan


def plan_module(arch: str) -> str:
    """The module of a package with its plan for one of several architectures."""
    return f"plan_{arch}"


def name_for_arch(package: str, arch: str) -> str:
    """What tables and messages call a package; arch: which of several, "" where it is for one alone."""
    return f"{package} ({arch})" if arch else package


class PlanByArch:
    """on_miss, sms: of the plans for all architectures; see BasePlan."""

    name: ClassVar[str]
    archs: ClassVar[tuple[str, ...]]

    def __init__(self, on_miss: Literal["compile", "warn", "error"] = "compile", sms: int | None = None) -> None:
        self._settings: dict[str, Any] = {"on_miss": on_miss, "sms": sms}
        self._plans = Table(self._load)
        self._of_device = Table(self._find)

    def on(self, arch: str) -> BasePlan:
        """The plan for one architecture. ValueError: the package has no kernels for it."""
        if arch not in self.archs:
            raise ValueError(f"{self.name}: has kernels for {' and '.join(self.archs)}, not for {arch}")
        plan: BasePlan = self._plans[arch]
        return plan

    @property
    def here(self) -> BasePlan:
        """The plan for the current device; for the first architecture where there is none, or no kernel is for it."""
        try:
            return self._for_device(current_device())
        except ValueError:
            return self.on(self.archs[0])

    def _load(self, arch: str) -> BasePlan:
        own = sys.modules[type(self).__module__]
        module = importlib.import_module(f"{own.__name__}_{arch}")
        plan: BasePlan = module.PLAN if getattr(own, "PLAN", self) is self else module.Plan()
        for name, value in self._settings.items():
            setattr(plan, name, value)
        return plan

    def _find(self, index: int) -> BasePlan:
        return self.on(find_arch(self.name, index, self.archs))

    def _for_device(self, index: int) -> BasePlan:
        """ValueError: no kernel is for that CUDA device. index: -1 where tensors are on none."""
        plan: BasePlan = self._of_device[index] if index >= 0 else self.on(self.archs[0])
        return plan

    def _for(self, values: Sequence[Any]) -> BasePlan:
        """The plan for the device of the first tensor."""
        index = next((v.get_device() for v in values if hasattr(v, "get_device")), None)
        return self._for_device(current_device() if index is None else index)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return self._settings[name] if name in self._settings else getattr(self.here, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Settings are those of the plans for all architectures."""
        if name in self.__dict__.get("_settings", ()):
            self._settings[name] = value
            for plan in self._plans.values():
                setattr(plan, name, value)
        else:
            super().__setattr__(name, value)

    def __copy__(self) -> PlanByArch:
        return self

    def __deepcopy__(self, memo: object) -> PlanByArch:
        """Itself, as of a function."""
        return self

    def __reduce__(self) -> tuple[Callable[..., PlanByArch], tuple[Any, ...]]:
        """What another process gets is a plan with the same settings, whose kernels are not compiled there yet."""
        return type(self), tuple(self._settings.values())

    # -- what runs on a device --

    def kernel_fn(self, *inputs: Any, sms: int | None = None) -> Any:
        return self._for(inputs).kernel_fn(*inputs, sms=sms)

    def launch_fn(self, *values: Any, sms: int | None = None) -> None:
        self._for(values).launch_fn(*values, sms=sms)

    def launch_into(self, inputs: Sequence[Any], outputs: Sequence[Any], sms: int | None = None) -> None:
        self._for(inputs).launch_into(inputs, outputs, sms)

    def plan(self, *inputs: Any, sms: int | None = None) -> Any:
        return self._for(inputs).plan(*inputs, sms=sms)

    def __call__(self, *inputs: Any, out: Any = None, sms: int | None = None, **named: Any) -> Any:
        """As of the plan for the device that its operands are on."""
        return self._for((*inputs, *named.values()))(*inputs, out=out, sms=sms, **named)

    def warm_up(self, *args: Any, **named: Any) -> None:
        """Of the plan for the current device. ValueError: no kernel is for it."""
        self._for(()).warm_up(*args, **named)

    def prepare_inputs(self, **dims: int) -> tuple[Any, ...]:
        """Fresh random inputs of one problem."""
        return self.here.prepare_inputs(**dims)

    def reference_fn(self, *inputs: Any, precision: str = "float32") -> Any:
        """The outputs by plain torch, on any device."""
        return self.here.reference_fn(*inputs, precision=precision)

    def register_torch_op(self, name: str | None = None) -> Any:
        """torch.ops.cutegen.NAME, which runs on the devices of all architectures; see BasePlan."""
        return register_plan(self, name or self.name)  # type: ignore[arg-type]
