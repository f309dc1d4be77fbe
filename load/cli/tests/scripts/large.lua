-- a body of a million bytes, NUL among them
wrk.method = "PUT"
wrk.body = string.rep("x\0", 500000)
