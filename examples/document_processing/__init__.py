"""Document processing: a web application whose documents are worked on by jobs.

`python -m examples.document_processing` runs it. Read `jobs.py` first, then `app.py`; `people.py`
says who may do what, `documents.py` and `text.py` are what every application has: its data and its
work.
"""
