"""Result files of other tools: their times, clocks and requests, read as bounded records."""
