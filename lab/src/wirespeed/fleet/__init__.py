"""The near side of the hosts: channels to their agents, and all of them as one fleet."""
