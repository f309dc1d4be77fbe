-- a file's bytes as the body, read once
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local file = assert(io.open(here .. "paths.txt", "rb"))
local content = file:read("*all")
file:close()
wrk.method = "PUT"
wrk.path = "/upload/paths.txt"
wrk.body = content .. string.char(0, 1, 254, 255)
wrk.headers["Content-Type"] = "application/octet-stream"
