// The gateway on request threads.
/**
 * Embedded Tomcat inbound, Apache HttpClient's pool and connections outbound, and one thread a
 * request between them: the shape of Zuul 1. Filters, routes, configuration and the admin port are
 * those of gateway-core and gateway-runtime.
 */
package wirespeed.gateway.tomcat;
