"""Where and how precisely a model is trained: devices, processes and mixed precision, through accelerate."""

import os
from typing import Literal

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState, PartialState

from permalign.errors import ConfigError, UsageError

Precision = Literal["fp32", "bf16", "fp16"]

DEVICE_VARIABLE, PRECISION_VARIABLE = "ACCELERATE_TORCH_DEVICE", "ACCELERATE_MIXED_PRECISION"
"""The environment variables by which accelerate is configured, for example by ``accelerate launch``."""


def make_accelerator(precision: Precision | None = None, device: str | None = None) -> Accelerator:
    """Create the `Accelerator`, which handles devices, processes and mixed precision.

    Without ``cpu=True``, it would treat several processes without a GPU as separate runs. ``find_unused_parameters`` is
    needed because some heads do not use all their parameters in every step.

    Args:
        precision: the precision of layers; None for what accelerate is configured to (float32 by default).
        device: the device; None for what accelerate chooses, which is the first GPU, or the CPU if there is none.

    Raises:
        UsageError: there is no such device, or there are several processes.
        ConfigError: the device does not support the precision.
    """
    if device is not None:
        require_device(device)
    asked = os.environ.get(PRECISION_VARIABLE, "no") if precision is None else precision
    asked = "no" if asked == "fp32" else asked
    _forget_other_settings(asked, device)
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    before = os.environ.get(DEVICE_VARIABLE)
    if device is not None:
        os.environ[DEVICE_VARIABLE] = device
    try:
        accelerator = Accelerator(
            cpu=device == "cpu" or not torch.accelerator.is_available(),
            mixed_precision=asked,
            kwargs_handlers=[unused],
        )
    except ValueError as error:
        AcceleratorState._reset_state()  # it has kept the precision that it refused
        raise ConfigError(
            f"accelerate cannot train in {asked}: {str(error).rstrip('.')}. Use training.precision: fp32, bf16 or fp16."
        ) from None
    finally:
        if device is not None:
            _restore(before)
    if asked == "fp16" and not accelerator.native_amp:  # accelerate would train in float32 instead
        raise ConfigError(
            f"training.precision is fp16, but {accelerator.device} trains in float32 and bfloat16 only. Use "
            "training.precision: bf16, or leave it out."
        )
    return accelerator


def precision_of(accelerator: Accelerator) -> Precision | None:
    """The mixed precision of an accelerator; None without mixed precision.

    Raises:
        ConfigError: it is not one that permalign knows.
    """
    precision: str = accelerator.mixed_precision
    known: dict[str, Precision | None] = {"no": None, "bf16": "bf16", "fp16": "fp16"}
    if precision not in known:
        raise ConfigError(
            f"accelerate is configured to train in {precision}, but permalign knows bf16 and fp16 only. Set "
            "training.precision, or configure accelerate again with `accelerate config`."
        )
    return known[precision]


def require_device(device: str) -> None:
    """Require that this machine has a device.

    Raises:
        UsageError: it does not.
    """
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):  # torch raises one of these
        count = torch.accelerator.device_count()
        kind = torch.accelerator.current_accelerator()
        devices = ", ".join(["cpu", *(f"{kind}:{index}" for index in range(count))])
        raise UsageError(f"this machine has no device {device!r}; it has {devices}.") from None


def _forget_other_settings(precision: str, device: str | None) -> None:
    """Let accelerate forget the device and the precision of an earlier run in this process, if they were others."""
    if PartialState._shared_state and device is not None:
        state = PartialState()
        if state.num_processes > 1:
            raise UsageError(
                "a device was given, but `accelerate launch` gives each process its own. Leave it out."
            )
        if state.device != torch.device(device):
            AcceleratorState._reset_state(reset_partial_state=True)
    if AcceleratorState._shared_state and precision != AcceleratorState().mixed_precision:
        AcceleratorState._reset_state()


def _restore(device: str | None) -> None:
    if device is None:
        del os.environ[DEVICE_VARIABLE]
    else:
        os.environ[DEVICE_VARIABLE] = device
