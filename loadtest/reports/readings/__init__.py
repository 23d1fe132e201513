"""What the results say about each item of a paper: our number, and whether it agrees with the paper's.

| file | contents |
|---|---|
| `found` | what a reading returns, and what several of them need |
| `hsu`, `libman`, `mishra`, `pushup`, `roussev` | the readings of a paper, by the names in its file in `items/` |
"""
