"""Reports: one HTML file with verdicts, pictures and the evidence itself, which `verify` judges again.

``record`` holds everything a page is made of and ``html_page`` renders it; ``timeline``, ``histograms``, ``conditions`` and
``comparisons`` derive its parts.  ``read_page`` reads the record back, ``rejudge`` judges it, ``signatures`` checks who
signed it, ``redaction`` replaces names before, ``ci_formats`` has JUnit and Markdown.
"""
