-- random texts as keys, of a seed of each thread's own
local letters = "abcdefghijklmnopqrstuvwxyz0123456789"
local count = 0
function setup(thread)
  count = count + 1
  thread:set("seed", count * 1000)
end
function init(args) math.randomseed(seed) end
local function text(length)
  local out = {}
  for i = 1, length do
    local at = math.random(#letters)
    out[i] = letters:sub(at, at)
  end
  return table.concat(out)
end
function request()
  local body = string.format('{"key":"%s","value":%.6f}', text(12), math.random())
  return wrk.format("POST", "/keys/" .. text(8), nil, body)
end
