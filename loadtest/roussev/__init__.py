"""Roussev & Wu, "Client-Server Design Alternatives: Back to Pipes but with Threads" (docs/lab/designs.md).

| file | contents |
|---|---|
| `thread_numbers` | Table 2 and §3.2: each design with 10 to 200 threads |
| `designs` | Table 1, §4, §5: the designs under the same load |
| `baselines/` | the designs: small servers that all do the same work |
| `structures/` | how they hand clients to threads: buffer, queue, hash table, pipe |
| `probes` | Theorems 1 to 3: how many slots of a hash table are probed |
| `crowd` | many of the paper's clients (Figure 1) on one epoll loop |
"""
