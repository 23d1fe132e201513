"""Two releases run together: the frozen one, which is an artifact beside this, and the tree.

| file | what it defines |
|---|---|
| `frozen.zip`, `frozen.toml` | the artifact, and what it is: `python -m tests.releases freeze` makes both |
| `artifact` | makes an artifact of a commit, and unpacks it |
| `sample` | goes into the artifact: writes a journal with something of everything, and reads one |
| `release` | a release that servers are started of, and who can follow whom |
| `clients` | publishers, pollers and streams that write down what they are told, and the verdict |
| `landmarks` | channels, a key and a closing that every server must know, whichever release it is |
| `servers` | a cluster and a machine, whose servers are replaced by those of another release |
"""
