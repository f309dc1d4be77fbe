-- words behind the URL: a prefix, and a proxy's absolute form
local prefix
function init(args)
  assert(args[0]:match("^http://") and #args == 2 and args[3] == nil)
  prefix = "http://" .. args[1] .. ".example.org/" .. (args[2] or "")
end
function request() return wrk.format("GET", prefix .. "/about.html") end
