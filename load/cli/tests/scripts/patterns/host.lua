-- another virtual host and fields that come and go
wrk.headers["Host"] = "shop.example.org"
wrk.headers["Accept"] = "*/*"
wrk.headers["Connection"] = "Keep-Alive"
local n = 0
function request()
  n = n + 1
  wrk.headers["X-Odd"] = n % 2 == 1 and "yes" or nil
  return wrk.format("GET", "/host")
end
