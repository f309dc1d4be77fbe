-- names, values and bodies that are not texts, and a table of fields that replaces the usual one
wrk.headers = { "X-Listed: yes", ["Content-Type"] = "text/plain", ["X-Flag"] = true, ["X-Number"] = 2.5 }
wrk.method = "POST"
wrk.body = 42
local n = 0
function request()
  n = n + 1
  return wrk.format(nil, "/" .. n, nil, n % 2 == 0 and 1000 + n or nil)
end
