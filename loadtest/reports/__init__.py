"""Results.

| file | contents |
|---|---|
| `results` | tables and figures, for people and for programs |
| `about` | how a result was measured, recorded by the program; which are old, and which must not be mixed |
| `saved` | reads the tables in a folder |
| `items/` | what is in each paper: a file for each |
| `items` | reads these files; judges each item by what was measured |
| `readings` | our number for each item, and the rule by which it agrees with the paper |
| `blocks`, `item_blocks` | the parts of the documents that are made from results |
| `markdown` | a table in Markdown |
| `documents` | writes these parts |
| `report`, `report.css` | one page with all that is in a folder |
"""
