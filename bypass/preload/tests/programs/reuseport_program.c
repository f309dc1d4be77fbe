/* pair: a program of the kernel's chooses among listeners of one port: all connections go to the one that it names. */
#include "reuseport.h"

static void server(void) {
    int members[2];
    members[0] = listening(unbound_member(), 0);
    members[1] = listening(unbound_member(), port_of(members[0]));
    for (int i = 0; i < 2; i++) /* They accept from now on. */
        result("accept", accept(members[i], NULL, NULL));
    attach(members[0]);
    count(members);
}
