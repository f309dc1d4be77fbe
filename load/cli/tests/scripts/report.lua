-- prints every kind of figure that done receives
function done(summary, latency, requests)
  print("requests " .. summary.requests .. " bytes " .. summary.bytes)
  local e = summary.errors
  print("errors " .. e.connect + e.read + e.write + e.status + e.timeout)
  print("ordered " .. tostring(latency.min <= latency:percentile(50)
    and latency:percentile(50) <= latency:percentile(99) and latency:percentile(99) <= latency.max))
  local total = 0
  for i = 1, #latency do
    local value, count = latency(i)
    total = total + count
  end
  print("samples " .. total .. " seconds " .. math.floor(summary.duration / 1e6 + 0.5))
  print("rates " .. tostring(requests.max >= requests.mean))
end
