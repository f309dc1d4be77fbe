-- the summary as JSON
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local json = dofile(here .. "lib/json.lua")
function done(summary, latency, requests)
  summary.latency = { min = latency.min, max = latency.max, mean = latency.mean, stdev = latency.stdev }
  summary.rate = { mean = requests.mean, total = requests.total }
  print(json.encode(summary))
end
