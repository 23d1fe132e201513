"""A question-and-answer community: an ordinary Flask application whose pages update themselves.

| file | what it does |
|---|---|
| `app` | the pages |
| `database` | questions and answers in SQLite |
"""
