-- The one form of a key, as the master stores and compares it. keys[type](text) returns
-- that form, or nil where the type cannot be read from the text.

local ffi = require "ffi"

local M = {}

local int64 = ffi.typeof "int64_t"

-- The value of a canonical number, for which a double is too small.
function M.number(text)
    local digits = text:match "^%-?(%d+)$"
    local value = 0LL
    for digit in digits:gmatch "%d" do
        value = value * 10 - tonumber(digit) -- downwards: there is one negative more
    end
    return text:byte() == 45 and value or -value
end

-- Digits without leading zeros can be compared by their length and then as text.
local function integer(most)
    return function(text)
        local sign, digits = text:match "^%s*([+-]?)0*(%d+)%s*$"
        if not digits then
            return nil
        end
        local limit = sign == "-" and most.below or most.above
        if #digits > #limit or (#digits == #limit and digits > limit) then
            return nil
        end
        return (sign == "-" and digits ~= "0") and "-" .. digits or digits
    end
end

M.smallint = integer { above = "32767", below = "32768" }
M.integer = integer { above = "2147483647", below = "2147483648" }
M.bigint = integer { above = "9223372036854775807", below = "9223372036854775808" }

-- Without exponents and special values: a gateway refuses them.
function M.numeric(text)
    local sign, whole, rest = text:match "^%s*([+-]?)(%d*)(%.?%d*)%s*$"
    if not whole or not (whole .. rest):find "%d" then
        return nil
    end
    whole = whole:gsub("^0+", "")
    rest = rest:gsub("0+$", ""):gsub("^%.$", "")
    local number = (whole == "" and "0" or whole) .. rest
    return (sign == "-" and number ~= "0") and "-" .. number or number
end

function M.text(text)
    return text
end

M["character varying"] = M.text

function M.character(text)
    return (text:gsub(" +$", ""))
end

-- Upper or lower case, with or without braces, a hyphen behind any four digits.
function M.uuid(text)
    local inner = text:match "^{(.*)}$" or text
    local hex, at = {}, 1
    for group = 1, 8 do
        hex[group] = inner:match("^%x%x%x%x", at)
        if not hex[group] then
            return nil
        end
        at = at + 4
        if group < 8 and inner:sub(at, at) == "-" then
            at = at + 1
        end
    end
    if at <= #inner then
        return nil
    end
    return ("%s%s-%s-%s-%s-%s%s%s"):format(unpack(hex)):lower()
end

return M
