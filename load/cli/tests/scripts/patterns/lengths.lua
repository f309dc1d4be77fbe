-- lengths that the script thinks it has to set
wrk.headers["Content-Length"] = "99"
local body = '{"a":1}'
local n = 0
function request()
  n = n + 1
  if n % 2 == 0 then return wrk.format("PUT", "/with", { ["Content-Length"] = #body }, body) end
  return wrk.format("GET", "/without")
end
