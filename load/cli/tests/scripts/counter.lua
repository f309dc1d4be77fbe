-- another path and field for each request
local n = 0
function request()
  local path = "/" .. n
  wrk.headers["X-Number"] = n
  n = n + 1
  return wrk.format(nil, path)
end
