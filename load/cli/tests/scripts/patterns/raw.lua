-- requests that the script writes itself, of HTTP/1.0 too
local all = {
  "GET /raw HTTP/1.1\r\nHost: raw.example.org\r\nUser-Agent: test\r\n\r\n",
  "POST /raw HTTP/1.1\r\nHost: raw.example.org\r\nContent-Length: 4\r\n\r\nbody",
  "GET /old HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
}
local n = 0
function request()
  n = n + 1
  return all[n % #all + 1]
end
