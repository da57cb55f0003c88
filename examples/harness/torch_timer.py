"""torch's Timer, unchanged: ``gpuwatch run --auto -- python examples/harness/torch_timer.py``."""

import torch
from torch.utils.benchmark import Timer

device = "cuda" if torch.cuda.is_available() else "cpu"
side = 4096 if device == "cuda" else 128
a, b = (torch.randn(side, side, device=device) for _ in "ab")
measured = Timer("torch.matmul(a, b)", globals={"a": a, "b": b}, label="matmul").blocked_autorange()
print(measured)
