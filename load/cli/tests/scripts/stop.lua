-- ends its thread after ten answers
local n = 0
function response()
  n = n + 1
  if n == 10 then wrk.thread:stop() end
end
