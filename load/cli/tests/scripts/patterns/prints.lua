-- prints in every function, before and behind the report
print("loading")
function setup(thread) print("setting up") end
function init(args) print("beginning", #args) end
local first = true
function response()
  if first then print("first response") end
  first = false
end
function done() print("finished") end
