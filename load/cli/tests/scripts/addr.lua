-- setup finds the addresses of the URL and gives each thread the next one
local found, given = nil, 0
function setup(thread)
  found = found or wrk.lookup(wrk.host, wrk.port or "http")
  given = given % #found + 1
  assert(wrk.connect(found[given]))
  thread.addr = found[given]
end
function init() print("address " .. tostring(wrk.thread.addr)) end
