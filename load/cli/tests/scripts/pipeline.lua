-- three requests in one text
local text
function init(args)
  text = wrk.format(nil, "/one") .. wrk.format(nil, "/two") .. wrk.format(nil, "/three")
end
function request() return text end
