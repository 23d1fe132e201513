"""What the results say about each item of a paper: our number, and the rule by which it agrees with the paper.

| file | contents |
|---|---|
| `found` | what a reading returns, and what several of them need |
| `hsu`, `libman`, `mishra`, `pushup`, `roussev` | the readings of a paper, by the names in its file in `items/` |
"""
