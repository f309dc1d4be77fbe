-- the distribution as the program's own examples print it
function done(summary, latency, requests)
  io.write("------------------------------\n")
  for _, p in pairs({ 50, 75, 90, 95, 99, 99.9, 99.99, 99.999 }) do
    local n = latency:percentile(p)
    io.write(string.format("%g%% whole %s sane %s\n", p, tostring(n == math.floor(n)),
      tostring(n >= latency.min and n <= latency.max * 1.001)))
  end
  io.write(string.format("mean %s\n", tostring(latency.mean > 0 and latency.mean <= latency.max)))
end
