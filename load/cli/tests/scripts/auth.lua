-- takes a token from the first answer and shows it from then on
local token
function request()
  if token then return wrk.format("GET", "/inside") end
  return wrk.format("GET", "/login")
end
function response(status, headers, body)
  if token == nil and status == 200 and body == "hello" then
    token = headers["X-Token"]
    wrk.headers["X-Token"] = token
  end
end
