"""Facts of architectures and devices: each number once, with its source."""

from cutegen.hardware.arch import ARCHS, Arch
from cutegen.hardware.device import DEVICES, MOST_SMS, Device, default_device

__all__ = ["ARCHS", "DEVICES", "MOST_SMS", "Arch", "Device", "default_device"]
