-- many requests rendered at the start, asked in an order of each thread's own
local ready = {}
local threads = 0
function setup(thread)
  thread:set("first", threads * 500)
  threads = threads + 1
end
function init(args)
  for i = 1, 1000 do
    ready[i] = wrk.format(i % 10 == 0 and "POST" or "GET", "/set/" .. i, nil, i % 10 == 0 and "n=" .. i or nil)
  end
end
function request()
  first = first % #ready + 1
  return ready[first]
end
