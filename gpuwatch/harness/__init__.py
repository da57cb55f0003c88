"""Windows around the timed parts of other projects' harnesses, with the times that the harnesses measured."""
