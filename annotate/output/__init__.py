"""A verdict as text, Markdown and HTML, and the pages of the rules."""
