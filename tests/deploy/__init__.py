"""What stands around PushUp: HAProxy, containers, the local cluster, the example; with the real programs."""
