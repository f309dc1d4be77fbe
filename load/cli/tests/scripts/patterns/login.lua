-- logs in, then asks as who it is; a status that is not 200 is told
local token
function request()
  if not token then return wrk.format("POST", "/login", nil, '{"user":"me"}') end
  return wrk.format("GET", "/inside", { Authorization = "Bearer " .. token })
end
function response(status, headers, body)
  if status ~= 200 then print("status " .. status) end
  token = token or headers["X-Token"]
end
