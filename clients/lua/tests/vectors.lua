-- The published test vectors, with the modules as they are installed: vectors.lua DIRECTORY, where they are.

local directory = arg[1]
local hash = require "shardmaster.hash"
local keys = require "shardmaster.keys"
local is_moving = require("shardmaster.moving").is_moving

-- The string of a line; code points above U+FFFF are two escapes in JSON.
local function utf8(code)
    if code < 0x80 then
        return string.char(code)
    elseif code < 0x800 then
        return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64)
    elseif code < 0x10000 then
        return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
    end
    return string.char(0xF0 + math.floor(code / 262144), 0x80 + math.floor(code / 4096) % 64,
        0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

local function unquote(text)
    local plain = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
    text = text:gsub("\\u([dD][89abAB]%x%x)\\u(%x%x%x%x)", function(high, low)
        return utf8(0x10000 + (tonumber(high, 16) - 0xD800) * 1024 + tonumber(low, 16) - 0xDC00)
    end)
    text = text:gsub("\\u(%x%x%x%x)", function(hex)
        return utf8(tonumber(hex, 16))
    end)
    return (text:gsub("\\(.)", function(char)
        return plain[char] or char
    end))
end

local count = 0
for line in io.lines(directory .. "/vectors.jsonl") do
    local kind, key, shard_count, shard = line:match '^%["(%a+)", "(.*)", (%d+), (%d+)%]$'
    key = unquote(key)
    local canonical = assert(keys[kind](key), line)
    local value = kind == "bigint" and keys.number(canonical) or canonical
    assert(hash[kind](value, tonumber(shard_count)) == tonumber(shard), line)
    count = count + 1
end
assert(count >= 1000)

local states = { ["true"] = 0, ["false"] = 0 }
for line in io.lines(directory .. "/moving.jsonl") do
    local state, moving = line:match '^%["(.*)", (%a+)%]$'
    assert(tostring(is_moving(state)) == moving, line)
    states[moving] = states[moving] + 1
end
assert(states["true"] > 0 and states["false"] > 0)
assert(is_moving(nil) == false)
print(("%d vectors, %d SQLSTATEs"):format(count, states["true"] + states["false"]))
