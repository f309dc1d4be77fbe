"""The kinds of site: how their hosts are reached, and what is where."""
