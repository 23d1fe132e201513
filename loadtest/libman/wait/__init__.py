"""How the reactor and the emulated proactor wait for sockets (the paper's WaitStrategy): one file for each way.

| file | name | what it asks the kernel |
|---|---|---|
| `strategy` | | the interface, and what a socket can be ready for |
| `with_select` | select | `select(2)`: three sets of descriptors each time; none above 1,023 |
| `with_poll` | poll | `poll(2)`: an array of descriptors each time |
| `with_epoll` | epoll | `epoll(7)`, level-triggered: reported as long as a socket is ready |
| `with_epoll_edge` | epoll-edge | `epoll(7)`, edge-triggered: reported once when a socket becomes ready |
| `strategies` | | the table of them by name |

The paper's other strategies are those of other systems (/dev/poll, port_get, kqueue), or were Linux's way to be told of
edges before it had epoll (real-time signals).
"""
