-- a session: what the server gave is shown from then on, each response asks for the next page
local session, page = nil, 0
function request()
  if not session then return wrk.format("GET", "/login") end
  return wrk.format("GET", string.format("/pages/%03d?last=%s", page, page > 1), { Cookie = session })
end
function response(status, headers, body)
  if headers["X-Token"] then
    session = "sid=" .. headers["X-Token"] .. "; theme=dark"
  end
  page = page + 1
end
