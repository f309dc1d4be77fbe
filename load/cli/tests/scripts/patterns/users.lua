-- random users, repeatable in each thread
local number = 0
function setup(thread)
  number = number + 1
  thread:set("id", number)
end
function init(args) math.randomseed(id) end
function request()
  local user = math.random(1, 100000)
  wrk.headers["X-User"] = user
  wrk.headers["Authorization"] = "Bearer " .. string.format("%08x", user)
  return wrk.format("GET", "/users/" .. user .. "?t=" .. id)
end
