-- a pipeline of requests that differ in method and body
function init(args)
  local all = {}
  all[1] = wrk.format("GET", "/?a=1")
  all[2] = wrk.format("POST", "/", nil, "one")
  all[3] = wrk.format("PUT", "/two", { ["X-Two"] = "2" }, "two\r\n\r\ntwo")
  batch = table.concat(all)
end
function request() return batch end
