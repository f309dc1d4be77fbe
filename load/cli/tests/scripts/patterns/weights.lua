-- four reads for each write, rendered once
local ready, turn = {}, 0
function init(args)
  for i = 1, 4 do ready[i] = wrk.format("GET", "/read/" .. i) end
  ready[5] = wrk.format("POST", "/write", { ["Content-Type"] = "text/plain" }, "written")
end
function request()
  turn = turn % 5 + 1
  return ready[turn]
end
