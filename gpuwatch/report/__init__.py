"""A report: one HTML file with verdicts, pictures and the evidence itself, which `verify` judges again.  ``record`` is its heart.

``record`` is all a page is made of, ``page`` makes it, ``pictures`` and ``conditions`` derive what is shown, ``embedded``
gets the record out of a page again, ``agreement`` judges it, ``redaction`` takes names out before, ``junit`` is for CI.
"""
