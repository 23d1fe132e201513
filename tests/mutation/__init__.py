"""Mutation testing: small changes to the code, each of which some test must notice. `python -m tests.mutation --help`.

| file | what it defines |
|---|---|
| `mutants` | the changes that are tried in a file |
| `running` | runs, for each mutant, the tests that reach it, in a fork of a process that has everything loaded |
| `explained` | the mutants that no test can kill, with the reasons, which are in `survivors.toml` |

No existing tool fits: cosmic-ray starts the tests anew for each mutant; mutmut forks, but leaves out decorated
functions (so all properties) and whatever is outside of functions.
"""
