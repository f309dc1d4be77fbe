-- as much of an encoder as the scripts here need: tables with names in order, lists, texts, numbers
local json = {}

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function text(value)
  return '"' .. value:gsub('[%c"\\]', function(c) return escapes[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

function json.encode(value)
  if type(value) ~= "table" then
    return type(value) == "string" and text(value) or tostring(value)
  end
  local parts = {}
  if #value > 0 then
    for i, one in ipairs(value) do parts[i] = json.encode(one) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  local names = {}
  for name in pairs(value) do names[#names + 1] = tostring(name) end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = text(name) .. ":" .. json.encode(value[name]) end
  return "{" .. table.concat(parts, ",") .. "}"
end

return json
