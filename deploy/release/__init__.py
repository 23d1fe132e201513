"""What a release needs: `python -m deploy.release` checks everything, and says what to push.

`checks` are what it checks, such as that the tree is clean and the image answers. `constraints` prints hashes for
`make constraints`. Beside them are the scripts that make what is published, for `make wheels` (`client.sh` makes the
wheel of pushup-client), `make npm` and `make deb`. Nothing is published from here: a pushed tag does that, by the
workflow `release.yml`.
"""
