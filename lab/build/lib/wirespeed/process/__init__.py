"""One process of a trial: started, found ready, stopped, always through a host."""
