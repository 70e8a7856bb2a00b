-- Where the keys of a keyspace live, from what shard_gateway_config() writes.

local hash = require "shardmaster.hash"
local keys = require "shardmaster.keys"

-- What keys of a type are hashed and ordered as.
local kinds = {
    smallint = "bigint",
    integer = "bigint",
    bigint = "bigint",
    text = "text",
    ["character varying"] = "text",
    character = "text",
    uuid = "uuid",
}

-- The words of the entries, one after the other.
local function words(space)
    return table.concat(space.entries):gmatch "%S+"
end

-- %XX stands for a byte.
local function plain(word)
    return (word:gsub("%%(%x%x)", function(hex)
        return string.char(tonumber(hex, 16))
    end))
end

-- Each finder takes a key in its one form and returns the number of its place.
local finders = {}

-- Entries: key and place.
function finders.directory(space)
    local places, next_word = {}, words(space)
    for key in next_word do
        places[plain(key)] = tonumber(next_word())
    end
    return function(key)
        return places[key]
    end
end

-- Entries: the places of buckets 0, 1, ...
function finders.hash(space)
    local places = {}
    for place in words(space) do
        places[#places + 1] = tonumber(place)
    end
    assert(#places == space.buckets, "a place for each bucket")
    local bucket = hash[kinds[space.key_type]]
    local value = kinds[space.key_type] == "bigint" and keys.number or keys.text
    return function(key)
        return places[bucket(value(key), space.buckets) + 1]
    end
end

-- Entries: lower bound, upper bound, place, in the order of the bounds; a bound that is
-- open is a star. LuaJIT compares strings byte by byte, as ranges of keys are ordered.
function finders.range(space)
    local value = kinds[space.key_type] == "bigint" and keys.number or keys.text
    local lowers, uppers, places, next_word = {}, {}, {}, words(space)
    local function bound(word)
        return word ~= "*" and value(plain(word)) or nil
    end
    for word in next_word do
        local n = #places + 1
        lowers[n] = bound(word)
        uppers[n] = bound(next_word())
        places[n] = tonumber(next_word())
    end
    -- The last range that begins at or before the key.
    return function(key)
        local wanted, first, last = value(key), 1, #places
        while first <= last do
            local middle = math.floor((first + last) / 2)
            if lowers[middle] == nil or lowers[middle] <= wanted then
                first = middle + 1
            else
                last = middle - 1
            end
        end
        if last > 0 and (uppers[last] == nil or wanted < uppers[last]) then
            return places[last]
        end
    end
end

-- Takes a keyspace; returns a function of a key that returns what the keyspace calls the
-- key's place and the shard's name. Without a place: nil and "malformed", "unassigned",
-- "closed" where the key's shard is disabled (its place is false), or "unserved" where it has
-- no service (its place is 0).
return function(space)
    local canonical = assert(keys[space.key_type], "type of the key")
    local find = assert(finders[space.strategy], "strategy")(space)
    return function(text)
        local key = not text:find "%z" and canonical(text)
        if not key then
            return nil, "malformed"
        end
        local place = find(key)
        if not place then
            return nil, "unassigned"
        end
        local name = space.places[place]
        if not name then
            return nil, "closed"
        end
        if name == 0 then
            return nil, "unserved"
        end
        return name, space.shards[place]
    end
end
