-- fields are encoded, in an order of their own
local function encoded(text)
  return (tostring(text):gsub("[^%w%-%.~_]", function(c) return ("%%%02X"):format(c:byte()) end))
end
local function form(fields)
  local out = {}
  for name, value in pairs(fields) do out[#out + 1] = encoded(name) .. "=" .. encoded(value) end
  table.sort(out)
  return table.concat(out, "&")
end
local n = 0
function request()
  n = n + 1
  local headers = { ["Content-Type"] = "application/x-www-form-urlencoded", ["X-Turn"] = n }
  return wrk.format("POST", "/search", headers, form({ q = "a b&c=ü", page = n, ["x y"] = true }))
end
