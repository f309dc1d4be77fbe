-- paths from a file beside the script, each thread at another place of the list
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local paths, threads = {}, 0
function setup(thread)
  thread:set("place", threads)
  threads = threads + 1
end
function init(args)
  local file = assert(io.open(here .. "paths.txt"))
  for line in file:lines() do
    if line ~= "" and line:sub(1, 1) ~= "#" then paths[#paths + 1] = line end
  end
  file:close()
  print("paths " .. #paths .. " arguments " .. #args)
end
function request()
  place = place % #paths + 1
  return wrk.format(nil, paths[place])
end
