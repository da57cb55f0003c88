"""Forms of a verdict for people: text, Markdown, HTML, and the pages of the rules."""
