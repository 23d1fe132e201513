/* The micro-costs of Mishra & Yang §5.3 with pthreads: a thread switch, lock and unlock, select; microseconds each.
 * Prints the three numbers. All on one processor. The argument is how many times each is done. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static long count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

static double microseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Hands the turn to the other thread and waits until it comes back: each turn is one switch. */
static void *take_turns(void *which)
{
    int me = which != NULL;
    pthread_mutex_lock(&mutex);
    for (long i = 0; i < count / 2; i++) {
        while (turn != me)
            pthread_cond_wait(&turned, &mutex);
        turn = !me;
        pthread_cond_signal(&turned);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(int argc, char **argv)
{
    cpu_set_t one;
    pthread_t thread;
    int ends[2];

    count = argc > 1 ? atol(argv[1]) : 10000;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);

    double begin = microseconds();
    pthread_create(&thread, NULL, take_turns, &mutex);
    take_turns(NULL);
    pthread_join(thread, NULL);
    double switches = (microseconds() - begin) / count;

    begin = microseconds();
    for (long i = 0; i < count; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    double locks = (microseconds() - begin) / count;

    if (pipe(ends) || write(ends[1], "x", 1) != 1)
        return 1;
    begin = microseconds();
    for (long i = 0; i < count; i++) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        if (select(ends[0] + 1, &set, NULL, NULL, NULL) != 1)
            return 1;
    }
    double selects = (microseconds() - begin) / count;

    printf("%.4f %.4f %.4f\n", switches, locks, selects);
    return 0;
}
