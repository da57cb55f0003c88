"""The monitor's text: pieces with a tone, without textual."""
