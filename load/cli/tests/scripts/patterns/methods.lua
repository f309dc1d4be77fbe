-- another method and body each time, by the fields of wrk alone
local turn = 0
local kinds = {
  { "POST", "/items", '{"name":"x"}', "application/json" },
  { "PUT", "/items/1", "name=y", "application/x-www-form-urlencoded" },
  { "DELETE", "/items/1" },
  { "PATCH", "/items/2", "" },
  { "OPTIONS", "*" },
}
function request()
  turn = turn % #kinds + 1
  wrk.method, wrk.path, wrk.body, wrk.headers["Content-Type"] = unpack(kinds[turn], 1, 4)
  return wrk.format()
end
