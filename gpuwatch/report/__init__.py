"""Reports: one HTML file with verdicts, charts and the evidence itself, which `gpuwatch judge` judges again.

``record`` holds all content of a page, and ``html_page`` renders it; ``timeline``, ``histograms``, ``conditions`` and
``comparisons`` derive the parts.  ``read_page`` reads a page's record, ``rejudge`` judges the windows again, and
``signatures`` checks the signers.  ``redaction`` replaces names in a record; ``ci_formats`` writes JUnit and Markdown.
"""
