-- functions of wrk's own, replaced or wrapped
local format, init_before = wrk.format, wrk.init
function wrk.init(args)
  wrk.headers["X-Init"] = "mine"
  init_before(args)
end
function wrk.format(method, path, headers, body)
  return format(method, (path or wrk.path) .. "?wrapped", headers, body)
end
