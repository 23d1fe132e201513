"""The template tag.

| file | what |
|---|---|
| `pushup.py` | `{% pushup %}` |
"""
