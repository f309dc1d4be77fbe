-- places in a text are filled, some by what the environment has
local template = "/$kind/$id?lang=$lang"
local values = { kind = "item", lang = os.getenv("NO_SUCH_LANGUAGE") or "de" }
local n = 0
function request()
  n = n + 1
  values.id = n
  return wrk.format("GET", (template:gsub("%$(%a+)", values)), { ["Accept-Language"] = values.lang })
end
