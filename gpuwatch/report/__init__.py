"""Reports: one HTML file with verdicts, pictures and the evidence itself, which `verify` judges again.

``record`` holds all content of a page, and ``html_page`` renders it; ``timeline``, ``histograms``, ``conditions`` and
``comparisons`` derive its parts.  ``read_page`` reads the record back, ``rejudge`` judges it, and ``signatures`` checks
its signer.  ``redaction`` replaces names beforehand; ``ci_formats`` writes JUnit and Markdown.
"""
