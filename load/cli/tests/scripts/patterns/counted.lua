-- what each thread did, gathered in the end, as a line for a spreadsheet
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args) requests, responses = 0, 0 end
function request()
  requests = requests + 1
  return wrk.request()
end
function response() responses = responses + 1 end
function done(summary, latency, rates)
  for _, thread in ipairs(threads) do
    local behind = thread:get("requests") - thread:get("responses")
    print("thread behind " .. tostring(behind >= 0 and behind <= 2))
  end
  local line = string.format("%d,%d,%d,%d,%d", summary.errors.connect, summary.errors.read,
    summary.errors.write, summary.errors.status, summary.errors.timeout)
  io.write("errors ", line, "\n")
  io.write(string.format("median %s\n", tostring(latency:percentile(50.0) > 0)))
  io.write(string.format("stdev %s\n", tostring(latency.stdev >= 0)))
end
