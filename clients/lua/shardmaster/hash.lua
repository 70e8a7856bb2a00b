-- The hash of shard_for(): XXH64 with seed 0. For LuaJIT, which has 64-bit integers.

local bit = require "bit"
local ffi = require "ffi"

local bxor, bswap, rol, rshift = bit.bxor, bit.bswap, bit.rol, bit.rshift
local u32 = ffi.typeof "const uint32_t *"
local u64 = ffi.typeof "const uint64_t *"
local bytes_of = ffi.typeof "const uint8_t *"
local int64 = ffi.typeof "int64_t[1]"
local big_endian = ffi.abi "be"

local PRIME1 = 0x9E3779B185EBCA87ULL
local PRIME2 = 0xC2B2AE3D27D4EB4FULL
local PRIME3 = 0x165667B19E3779F9ULL
local PRIME4 = 0x85EBCA77C2B2AE63ULL
local PRIME5 = 0x27D4EB2F165667C5ULL

local function read64(bytes, at)
    local value = ffi.cast(u64, bytes + at)[0]
    return big_endian and bswap(value) or value
end

local function read32(bytes, at)
    local value = ffi.cast(u32, bytes + at)[0]
    if big_endian then
        value = bswap(value) % 2 ^ 32
    end
    return 1ULL * value
end

local function round(lane, word)
    return rol(lane + word * PRIME2, 31) * PRIME1
end

local function merge(hash, lane)
    return bxor(hash, round(0ULL, lane)) * PRIME1 + PRIME4
end

-- Four lanes take 32 bytes at a time. Returns the hash so far and where the rest begins.
local function stripes(bytes, length)
    local a, b, c, d = PRIME1 + PRIME2, PRIME2, 0ULL, 0ULL - PRIME1
    local at = 0
    while at + 32 <= length do
        a = round(a, read64(bytes, at))
        b = round(b, read64(bytes, at + 8))
        c = round(c, read64(bytes, at + 16))
        d = round(d, read64(bytes, at + 24))
        at = at + 32
    end
    local hash = rol(a, 1) + rol(b, 7) + rol(c, 12) + rol(d, 18)
    return merge(merge(merge(merge(hash, a), b), c), d), at
end

local function xxh64(text)
    local bytes, length, at = ffi.cast(bytes_of, text), #text, 0
    local hash = PRIME5
    if length >= 32 then
        hash, at = stripes(bytes, length)
    end
    hash = hash + length
    while at + 8 <= length do
        hash = rol(bxor(hash, round(0ULL, read64(bytes, at))), 27) * PRIME1 + PRIME4
        at = at + 8
    end
    if at + 4 <= length then
        hash = rol(bxor(hash, read32(bytes, at) * PRIME1), 23) * PRIME2 + PRIME3
        at = at + 4
    end
    while at < length do
        hash = rol(bxor(hash, bytes[at] * PRIME5), 11) * PRIME1
        at = at + 1
    end
    hash = bxor(hash, rshift(hash, 33)) * PRIME2
    hash = bxor(hash, rshift(hash, 29)) * PRIME3
    return bxor(hash, rshift(hash, 32))
end

local function shard_for(bytes, shard_count)
    assert(shard_count > 0, "shard_count must be positive")
    return tonumber(xxh64(bytes) % shard_count)
end

local M = {}

-- Of a number or an int64_t.
function M.bigint(key, shard_count)
    local bytes = ffi.string(int64(big_endian and bswap(1LL * key) or key), 8)
    return shard_for(bytes, shard_count)
end

-- Of a string in UTF-8.
M.text = shard_for

-- Of a uuid as text, in the form that PostgreSQL writes.
function M.uuid(key, shard_count)
    local bytes = key:gsub("-", ""):gsub("%x%x", function(hex)
        return string.char(tonumber(hex, 16))
    end)
    return shard_for(bytes, shard_count)
end

return M
