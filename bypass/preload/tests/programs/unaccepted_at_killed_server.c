/* pair: a server is killed before it accepts connections that stand. */
#define ONLY_KILLED
#include "unaccepted_at_server.c"
