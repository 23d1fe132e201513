"""Who reads and writes: the handler (`reactor`), the engine (`emulated`) or the kernel (`uring`)."""
