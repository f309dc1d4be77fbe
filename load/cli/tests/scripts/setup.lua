-- values go to the threads and come back, tables among them
local threads = {}
function setup(thread)
  threads[#threads + 1] = thread
  thread:set("id", #threads)
  thread:set("box", { 1, "two", { three = true } })
end
function init(args) sent, last = 0, args[1] .. "," .. args[2] end
function request()
  assert(box[2] == "two" and box[3].three)
  sent = sent + 1
  return wrk.request()
end
function done()
  for _, thread in ipairs(threads) do
    print("thread " .. thread:get("id") .. " sent " .. tostring(thread:get("sent") > 0)
      .. " args " .. thread:get("last"))
  end
end
