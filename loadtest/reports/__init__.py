"""Results.

| file | contents |
|---|---|
| `results` | tables and figures, for people and for programs |
| `report` | one page with all that are in a folder |
"""
