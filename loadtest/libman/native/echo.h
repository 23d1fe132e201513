/* The echo server's handler for proactors. */

#pragma once

#include "proactor.h"

extern const struct handler echo;

void start_echo(struct channel *channel);
