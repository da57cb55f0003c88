"""The words and curves of the terminal monitor, as pieces of text: nothing here knows textual."""
