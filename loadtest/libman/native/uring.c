/* The true proactor of this system, io_uring: the kernel reads into the handler's buffer and writes from it.
 *
 * Operations are put into one ring, and completions are taken from another; both are shared with the kernel. All that has been
 * put there is submitted by the system call that waits for completions. */

#define _GNU_SOURCE
#include "proactor.h"
#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SUBMISSIONS 4096   /* that can be put into the ring before they have to be submitted */
#define COMPLETIONS 32768
#define ACCEPTS 64 /* under way at a time: with one of them, a turn with many messages accepts one connection */

static int ring, listener;
static struct io_uring_sqe *submissions;
static struct io_uring_cqe *completions;
static unsigned *submission_tail, *completion_head, *completion_tail, submission_mask, completion_mask;
static unsigned unsubmitted;

static void enter(unsigned at_least, unsigned flags)
{
    long taken = syscall(SYS_io_uring_enter, ring, unsubmitted, at_least, flags, NULL, 0);
    if (taken >= 0)
        unsubmitted -= taken;
    else if (errno != EINTR && errno != EAGAIN && errno != EBUSY)
        fail("io_uring_enter");
}

/* `channel`: whose operation it is; NULL: the listener's. */
static void submit(int operation, int fd, char *buffer, size_t length, struct channel *channel)
{
    while (unsubmitted > submission_mask)
        enter(0, 0);
    unsigned tail = *submission_tail;
    submissions[tail & submission_mask] = (struct io_uring_sqe){
        .opcode = operation, .fd = fd, .addr = (uintptr_t)buffer, .len = length, .user_data = (uintptr_t)channel};
    __atomic_store_n(submission_tail, tail + 1, __ATOMIC_RELEASE);
    unsubmitted++;
}

static void start(struct channel *channel)
{
    int operation = channel->operation == READ ? IORING_OP_RECV : IORING_OP_SEND;
    submit(operation, channel->fd, channel->buffer + channel->completed, channel->length - channel->completed, channel);
}

static void accept_next(void) { submit(IORING_OP_ACCEPT, listener, NULL, 0, NULL); }

static void handle(struct channel *channel, int result)
{
    if (!channel) {
        accept_next();
        if (result >= 0)
            accepted(new_connection(result));
        return;
    }
    if (result < 0)
        channel->error = -result;
    else
        channel->completed += result;
    if (channel->operation == WRITE && !channel->error && channel->completed < channel->length)
        start(channel);
    else
        completed(channel);
}

static void turn(int may_block)
{
    enter(may_block ? 1 : 0, IORING_ENTER_GETEVENTS);
    unsigned head = *completion_head;
    while (head != __atomic_load_n(completion_tail, __ATOMIC_ACQUIRE)) {
        struct io_uring_cqe completion = completions[head & completion_mask];
        __atomic_store_n(completion_head, ++head, __ATOMIC_RELEASE);
        handle((struct channel *)(uintptr_t)completion.user_data, completion.res);
    }
}

static void nothing(struct channel *channel) { (void)channel; }

static void open_it(int fd, const char *wait, int threads)
{
    static const struct proactor proactor = {nothing, start, nothing};
    struct io_uring_params p = {.cq_entries = COMPLETIONS, .flags = IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN};
    (void)wait;
    ring = syscall(SYS_io_uring_setup, SUBMISSIONS, &p);
    if (ring < 0)
        fail("this system has no io_uring, or not for this process");
    size_t size = p.cq_off.cqes + p.cq_entries * sizeof *completions, other = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    char *rings = mmap(NULL, size > other ? size : other, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    submissions = mmap(NULL, p.sq_entries * sizeof *submissions, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                       IORING_OFF_SQES);
    if (rings == MAP_FAILED || submissions == MAP_FAILED)
        fail("the rings cannot be mapped");
    submission_tail = (unsigned *)(rings + p.sq_off.tail);
    submission_mask = p.sq_entries - 1;
    completion_head = (unsigned *)(rings + p.cq_off.head);
    completion_tail = (unsigned *)(rings + p.cq_off.tail);
    completion_mask = p.cq_entries - 1;
    completions = (struct io_uring_cqe *)(rings + p.cq_off.cqes);
    for (unsigned i = 0; i < p.sq_entries; i++)
        ((unsigned *)(rings + p.sq_off.array))[i] = i;
    listener = fd;
    for (int i = 0; i < ACCEPTS; i++)
        accept_next();
    open_proactor(&proactor, threads);
}

const struct engine uring = {"uring", open_it, turn};
