"""The monitor's lines: tables, curves and strips as pieces of text with a tone, without textual."""
