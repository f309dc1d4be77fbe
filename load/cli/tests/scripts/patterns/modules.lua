-- modules next to the script, found by its own path
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
package.path = here .. "lib/?.lua;" .. package.path
local tools = require "tools"
local json = require("json")
local n = 0
function request()
  n = n + 1
  local user = { name = "user \"" .. n .. "\"", tags = { "a", "b" }, age = 20 + n, active = true }
  return wrk.format("POST", "/" .. tools.pick({ "users", "people" }, n), { Accept = "application/json" },
    json.encode(user))
end
