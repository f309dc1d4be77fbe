"""The far side: sent over standard input to a bare Python 3.6+, it does to a host what is asked."""
