"""Two releases run together: the frozen one, which is an artifact beside this, and the tree.

| file | what it defines |
|---|---|
| `frozen.zip`, `frozen.toml` | the artifact, and what it is: `python -m tests.releases freeze` makes both |
| `artifact` | makes an artifact of a commit, and unpacks it |
| `sample` | goes into the artifact: writes a journal with something of everything, and reads one |
| `release` | a release that servers are started of, and who can follow whom |
"""
