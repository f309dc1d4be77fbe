-- values go to a thread and come back; of tables wrk2 swaps names and values, and wrk crashes on tables inside them
local threads = {}
function setup(thread)
  threads[#threads + 1] = thread
  thread:set("number", 1.5)
  thread:set("text", "words")
  thread:set("truth", false)
  thread:set("nothing", nil)
end
function init(args)
  assert(number == 1.5 and text == "words" and truth == false and nothing == nil)
  number, text = number * 2, text .. " and more"
end
function done()
  for _, thread in ipairs(threads) do
    print(thread:get("number"), thread:get("text"), thread:get("truth"), thread:get("nothing"))
  end
end
