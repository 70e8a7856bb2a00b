rockspec_format = "3.0"
package = "shardmaster"
version = "0.2.0-1"

-- The archive of `make dist`, beside this file. `luarocks make` in this directory needs none.
source = {
    url = "file://shardmaster-0.2.0.zip",
    dir = "shardmaster-0.2.0/clients/lua",
}

description = {
    summary = "The client's side of shardmaster, which shards PostgreSQL: where keys live, and their hash",
    detailed = [[
What a gateway of LuaJIT (nginx, OpenResty, Kong) needs to send a request to the shard of its key,
from what the master's shard_gateway_config() writes.]],
    license = "Apache-2.0",
    maintainer = "The shardmaster authors",
    labels = { "postgresql", "sharding", "routing", "openresty", "kong" },
}

-- LuaJIT: the hash needs its ffi and 64-bit numbers.
dependencies = { "lua == 5.1" }

build = {
    type = "builtin",
    modules = {
        ["shardmaster.hash"] = "shardmaster/hash.lua",
        ["shardmaster.keys"] = "shardmaster/keys.lua",
        ["shardmaster.moving"] = "shardmaster/moving.lua",
        ["shardmaster.request"] = "shardmaster/request.lua",
        ["shardmaster.route"] = "shardmaster/route.lua",
    },
    copy_directories = {},
}
