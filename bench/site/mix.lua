-- Asks for the addresses of a file in turn, one a line.
local paths = {}
for path in io.lines(os.getenv("ADDRESSES")) do paths[#paths + 1] = path end
local at = 0

request = function()
  at = at % #paths + 1
  return wrk.format("GET", paths[at])
end
