"""Who reads and writes (the paper's Engine).

| file | what it does |
|---|---|
| `reactor` | reports that a socket is ready; the handler reads and writes |
| `emulated` | waits like a reactor, reads and writes itself, and reports what is completed |
| `uring` | hands reads and writes to the kernel (io_uring), and reports what that has completed |
| `ring` | the rings that are shared with the kernel |
| `pooled` | calls the handlers of a proactor in a pool of threads |
"""
