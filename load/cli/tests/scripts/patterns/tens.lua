-- each thread ends after some responses; the main state says how it went
local n = 0
function response(status, headers, body)
  n = n + 1
  if n == 10 then
    print("enough")
    wrk.thread:stop()
  end
end
function done(summary, latency, requests)
  local errors = summary.errors
  print("failed", errors.connect + errors.read + errors.write + errors.status + errors.timeout)
end
