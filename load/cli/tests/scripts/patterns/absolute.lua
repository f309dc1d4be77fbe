-- the whole URL is taken apart by the script
function init(args)
  local scheme, host, port, path = args[0]:match("^(%a+)://([^:/]+):(%d+)(/.*)$")
  assert(scheme == wrk.scheme and host == wrk.host and port == wrk.port and path == wrk.path)
  wrk.path = "/from/" .. host
  wrk.headers["X-Scheme"] = scheme
end
