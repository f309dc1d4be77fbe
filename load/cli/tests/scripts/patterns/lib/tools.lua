-- a module next to the scripts
local tools = {}

function tools.pick(list, number)
  return list[(number - 1) % #list + 1]
end

function tools.split(text, sign)
  local parts = {}
  for part in text:gmatch("[^" .. sign .. "]+") do parts[#parts + 1] = part end
  return parts
end

return tools
