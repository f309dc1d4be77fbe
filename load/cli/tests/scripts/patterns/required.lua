-- the module that wrk is, and modules of LuaJIT
local wrk = require "wrk"
local bit, ffi = require "bit", require("ffi")
ffi.cdef "int getpid(void);"
assert(ffi.C.getpid() > 0)
local n = 0
function request()
  n = n + 1
  return wrk.format("GET", "/" .. bit.bxor(n, 255) .. "/" .. bit.tohex(n, 4))
end
