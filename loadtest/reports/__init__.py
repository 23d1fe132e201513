"""Results.

| file | contents |
|---|---|
| `results` | tables and figures, for people and for programs |
| `saved` | reads the tables in a folder |
| `items/` | what is in each paper: a file for each |
| `items` | reads these files; compares each item with what was measured |
| `readings` | finds our number for each item in the results |
| `blocks` | the parts of the documents that are made from results |
| `documents` | writes these parts |
| `report` | one page with all that is in a folder |
"""
