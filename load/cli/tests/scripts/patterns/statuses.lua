-- what came, counted in globals that the main state reads in the end
local threads = {}
function setup(thread) threads[#threads + 1] = thread end
function init(args) good, bad, lengths, kind = 0, 0, 0, nil end
function response(status, headers, body)
  if status == 200 then good = good + 1 else bad = bad + 1 end
  lengths = lengths + #body
  kind = headers["Content-Length"]
end
function done(summary, latency, requests)
  for number, thread in ipairs(threads) do
    print("good", thread:get("good") > 0, thread:get("lengths") == 5 * thread:get("good"))
    print("other", thread:get("bad"), thread:get("kind"), thread:get("absent"))
  end
end
