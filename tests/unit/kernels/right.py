"""A right kernel on the CPU, tile by tile, with everything that a check can use. The other fixtures derive from it."""

import math

import torch

torch.set_num_threads(1)  # the tiles are small
TILE = (32, 32, 16)


def get_inputs(m=48, n=40, k=24):
    a = torch.randn(m, k).bfloat16()
    b = (torch.randn(n, k) * k**-0.5).bfloat16()
    return a, b


def reference_fn(a, b):
    return a.double() @ b.double().mT


def launch_fn(a, b, d):
    tm, tn, tk = TILE
    for i in range(0, d.shape[0], tm):
        for j in range(0, d.shape[1], tn):
            acc = torch.zeros(a[i : i + tm].shape[0], b[j : j + tn].shape[0])
            for s in range(math.ceil(a.shape[1] / tk)):
                k = slice(s * tk, (s + 1) * tk)
                acc += a[i : i + tm, k].float() @ b[j : j + tn, k].float().mT
            d[i : i + tm, j : j + tn] = acc


def kernel_fn(a, b):
    d = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype)
    launch_fn(a, b, d)
    return d
