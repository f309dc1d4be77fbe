/* pair: TCP_INFO of a listener says how many connections wait, as php-fpm asks it. */
#include "contract.h"

static void say_waiting(int listening) {
    struct tcp_info info = tcp_info(listening);
    say("%u wait of %u", info.tcpi_unacked, info.tcpi_sacked);
}

static void server(void) {
    int listening = listener(8);
    outcome("accept", accept(listening, NULL, NULL));
    say_waiting(listening);
    meet();
    meet();
    say_waiting(listening);
    outcome("accept", accept(listening, NULL, NULL));
    say_waiting(listening);
    meet();
}

static void client(void) {
    int port = hear();
    dial_port(port);
    meet();
    for (int i = 0; i < 3; i++)
        dial_port(port);
    meet();
    meet();
}
