-- Basic authentication, encoded by the script
local signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local function base64(text)
  local out = {}
  for i = 1, #text, 3 do
    local a, b, c = text:byte(i, i + 2)
    local bits = a * 65536 + (b or 0) * 256 + (c or 0)
    for place = 3, 0, -1 do
      local at = math.floor(bits / 64 ^ place) % 64 + 1
      out[#out + 1] = signs:sub(at, at)
    end
    if not b then out[#out - 1] = "=" end
    if not c then out[#out] = "=" end
  end
  return table.concat(out)
end
local users = { "ann:one", "bob:second", "cid:3" }
local turn = 0
function request()
  turn = turn + 1
  wrk.headers["Authorization"] = "Basic " .. base64(users[turn % #users + 1])
  return wrk.format()
end
