-- users think; a fixed rate has no use for it
function delay() return math.random(1, 3) end
function request() return wrk.format("GET", "/thinking") end
