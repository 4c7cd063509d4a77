"""Facts of architectures and devices: each number once, with its source."""

from cutegen.hardware.arch import ARCHS, Arch
from cutegen.hardware.device import DEVICES, Device, default_device

__all__ = ["ARCHS", "DEVICES", "Arch", "Device", "default_device"]
