-- a coroutine goes through the steps of a user
local steps = { "/", "/products?page=1", "/products/7", "/cart", "/checkout" }
request = coroutine.wrap(function()
  while true do
    for i, path in ipairs(steps) do
      local method = path == "/checkout" and "POST" or "GET"
      coroutine.yield(wrk.format(method, path, { ["X-Step"] = i }, method == "POST" and "pay=1" or nil))
    end
  end
end)
