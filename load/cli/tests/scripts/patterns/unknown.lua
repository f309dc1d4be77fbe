-- fields that are not there, which wrk answers with their names
function setup(thread) print("thread " .. thread.name) end
function init(args) print("own " .. wrk.thread.number) end
function done(summary, latency, requests)
  print("total " .. requests.total .. " " .. latency.median .. " " .. tostring(summary.total))
end
