-- The one form of keys, beside what PostgreSQL makes of the same texts.

local keys = require "shardmaster.keys"
local route = require "shardmaster.route"

-- Type, text, and the form that the type's output function writes; none: it is refused.
local forms = {
    { "smallint", " 007 ", "7" }, { "smallint", "-32768", "-32768" }, { "smallint", "32768" },
    { "integer", "+0", "0" }, { "integer", "-0", "0" }, { "integer", "2147483647", "2147483647" },
    { "integer", "2147483648" }, { "integer", "1 2" }, { "integer", "1.0" }, { "integer", "" },
    { "bigint", "000000000000000000000000000012", "12" }, { "bigint", "-9223372036854775808", "-9223372036854775808" },
    { "bigint", "9223372036854775808" }, { "bigint", "- 1" }, { "bigint", "--1" }, { "bigint", "1e3" },
    { "numeric", "1.50", "1.5" }, { "numeric", "-0.0", "0" }, { "numeric", "00.50", "0.5" }, { "numeric", ".5", "0.5" },
    { "numeric", "5.", "5" }, { "numeric", "+100", "100" }, { "numeric", "-12.340", "-12.34" }, { "numeric", "." },
    { "numeric", "1.2.3" }, { "numeric", "" },
    { "text", " a ", " a " }, { "character varying", "a ", "a " }, { "character", "a  ", "a" }, { "character", " a", " a" },
    { "uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" },
    { "uuid", "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" },
    { "uuid", "a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" },
    { "uuid", "a0eebc999c0b4ef8bb6d6bb9bd380a1" }, { "uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-" },
    { "uuid", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11" }, { "uuid", "a0e-ebc999c0b4ef8bb6d6bb9bd380a11" },
}

for _, case in ipairs(forms) do
    local form = keys[case[1]](case[2])
    assert(form == case[3], ("%s %q is %s, not %s"):format(case[1], case[2], tostring(form), tostring(case[3])))
end

-- A shard that is closed, one that is not, one without a service, and a range that nobody has.
local find = route {
    strategy = "range", key_type = "integer", places = { false, "b", 0 }, shards = { "a", "b", "c" },
    entries = { "* -5 1 ", "10 20 2 ", "20 * 3 " },
}
local function answer(key)
    return table.concat({ tostring(find(key)), tostring(select(2, find(key))) }, " ")
end
assert(answer "-6" == "nil closed")
assert(answer "-5" == "nil unassigned")
assert(answer "9" == "nil unassigned")
assert(answer "10" == "b b")
assert(answer "20" == "nil unserved")
assert(answer "ten" == "nil malformed")
assert(answer "1\0000" == "nil malformed")
print(#forms .. " forms")
