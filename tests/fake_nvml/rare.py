"""A program that takes two rare readings of every board, 0.15 s apart, and prints the readings as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from gpuwatch.sources.nvml.nvml_source import Nvml
from tests.waiting import let_pass


def main() -> None:
    source = Nvml()
    boards = [device.uuid for device in source.devices() if device.parent_uuid is None]
    rounds = []
    for _ in range(2):
        rounds.append([asdict(source.read_rare(uuid)) for uuid in boards])
        let_pass(0.15, "a metric of the performance monitor is the mean over at least 100 ms")
    source.close()
    json.dump(rounds, sys.stdout)


if __name__ == "__main__":
    main()
