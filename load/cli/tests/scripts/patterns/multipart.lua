-- a form with a file in it
local boundary = "----WebKitFormBoundaryePkpFF7tjBAqx29L"
local parts = {
  "--" .. boundary,
  'Content-Disposition: form-data; name="file"; filename="a.txt"',
  "Content-Type: text/plain",
  "",
  string.rep("line\n", 40),
  "--" .. boundary .. "--",
  "",
}
wrk.method = "POST"
wrk.body = table.concat(parts, "\r\n")
wrk.headers["Content-Type"] = "multipart/form-data; boundary=" .. boundary
