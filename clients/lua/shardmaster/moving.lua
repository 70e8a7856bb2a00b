-- What a shard, or shard_route(), says of a key that moves.

-- It has moved; it is between two shards; it moved since the transaction's snapshot.
local moving = { SM001 = true, SM002 = true, ["40001"] = true }

local M = {}

-- Whether this SQLSTATE says that the key moves: the whole transaction begins again, from a new
-- route. So does every other transaction that could not be serialized (40001).
function M.is_moving(sqlstate)
    return moving[sqlstate] == true
end

return M
