"""Facts of architectures and devices: each number once, with its source; an architecture to a module.

A test compares the shared memory with what the installed DSL reports.
"""

from cutegen.arch.architecture import Arch, Mma, Opcodes
from cutegen.arch.devices import DEVICES, MOST_SMS, Device, default_device
from cutegen.arch.sm90 import SM_90A
from cutegen.arch.sm100 import SM_100A
from cutegen.arch.sm103 import SM_103A
from cutegen.arch.sm120 import SM_120A
from cutegen.arch.sm121 import SM_121A

ARCHS: dict[str, Arch] = {arch.name: arch for arch in (SM_90A, SM_100A, SM_103A, SM_120A, SM_121A)}

__all__ = ["ARCHS", "DEVICES", "MOST_SMS", "Arch", "Device", "Mma", "Opcodes", "default_device"]
