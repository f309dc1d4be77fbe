-- numbers and times in paths
math.randomseed(42)
local n = 0
function request()
  n = n + 1
  assert(os.time() > 1e9 and os.clock() >= 0)
  local path = string.format("/%05d/%x/%s/%.2f/%s", n, n * 255, os.date("!%Y-%m-%d", n * 86400), n / 3,
    ("%q"):format("a"):gsub('"', "'"))
  return wrk.format("GET", path .. "/" .. math.random(10) .. "-" .. math.random(5, 9))
end
