/* pair: a program of the kernel's that chooses among listeners of one port is set before the first of them is bound. */
#include "reuseport.h"

static void server(void) {
    int members[2];
    members[0] = unbound_member();
    attach(members[0]);
    listening(members[0], 0);
    result("accept", accept(members[0], NULL, NULL)); /* It accepts from now on. */
    members[1] = listening(unbound_member(), port_of(members[0]));
    result("accept", accept(members[1], NULL, NULL));
    count(members);
}
