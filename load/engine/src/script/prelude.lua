-- The table `wrk` as scripts know it. `lookup` and `connect` are added by the host.
local wrk = { scheme = "http", host = "localhost", method = "GET", path = "/", headers = {} }

-- Under wrk it is a module; some scripts require it.
package.loaded.wrk = wrk

-- Modules that distributions install. The LuaJIT inside this program knows those of /usr/local only.
local folder = ({ x64 = "x86_64", arm64 = "aarch64" })[jit.arch] or jit.arch
package.path = package.path .. ";/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua"
package.cpath = package.cpath .. ";/usr/lib/" .. folder .. "-linux-gnu/lua/5.1/?.so;/usr/lib64/lua/5.1/?.so"
  .. ";/usr/lib/lua/5.1/?.so"

-- Keeps the addresses that take a connection.
function wrk.resolve(host, service)
  local reachable = {}
  for _, address in ipairs(wrk.lookup(host, service)) do
    if wrk.connect(address) then
      reachable[#reachable + 1] = address
    end
  end
  wrk.addrs = reachable
end

-- Runs in the main state for each thread.
function wrk.setup(thread)
  thread.addr = wrk.addrs[1]
  if type(setup) == "function" then setup(thread) end
end

local function host_field()
  local name = wrk.host
  -- servers know no name of a socket
  if name:sub(1, 1) == "/" then return "localhost" end
  -- a zone means nothing to the server (RFC 6874, 4)
  if name:find(":", 1, true) then name = "[" .. name:gsub("%%.*", "") .. "]" end
  return wrk.port and name .. ":" .. wrk.port or name
end

-- Runs in each thread's state before its first request.
function wrk.init(args)
  wrk.headers["Host"] = wrk.headers["Host"] or host_field()
  if type(init) == "function" then init(args) end
  local ready = wrk.format()
  wrk.request = function() return ready end
end

-- The text of a request. Host and Content-Length are set in the table that was given. Names and values may
-- be of any type that has a text.
function wrk.format(method, path, headers, body)
  headers = headers or wrk.headers
  body = body or wrk.body
  headers["Host"] = headers["Host"] or wrk.headers["Host"]
  -- one framing alone: a script that names a transfer coding has applied it to the body
  local coded = false
  for name in pairs(headers) do
    coded = coded or tostring(name):lower() == "transfer-encoding"
  end
  headers["Content-Length"] = body and not coded and string.len(body) or nil
  local text = string.format("%s %s HTTP/1.1\r\n", method or wrk.method, path or wrk.path)
  for name, value in pairs(headers) do
    text = text .. tostring(name) .. ": " .. tostring(value) .. "\r\n"
  end
  return text .. "\r\n" .. (body or "")
end

-- Threads, addresses and figures hide their metatables behind `false`; under wrk they have tables there,
-- and scripts that print whatever they get look into them.
local metatable_of = getmetatable
function getmetatable(value)
  local found = metatable_of(value)
  if found == false then return {} end
  return found
end

-- Looked up at each call: a script may replace its functions while the run goes on.
local calls = {}

function calls.request()
  local own = request
  if type(own) == "function" then return own() end
  return _G.wrk.request()
end

function calls.response(status, headers, body)
  local own = response
  if type(own) == "function" then own(status, headers, body) end
end

function calls.delay()
  local own = delay
  if type(own) == "function" then return own() end
end

return wrk, calls
