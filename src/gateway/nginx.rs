//! Configurations for nginx with its Lua module. Everything that comes from the catalog is a name that this extension
//! makes, checked, or quoted byte by byte.

use super::address::Address;
use super::key_source::KeySource;
use super::lua;
use super::map::{KeyspaceMap, upstream};
use super::text::{indented, shown};
use std::fmt::Write;

/// The number of idle connections that each of nginx's processes keeps to a shard's service.
const KEEPALIVE: u32 = 32;

/// Returns the services, for http { }.
pub fn upstreams(map: &KeyspaceMap) -> String {
    let mut text = String::new();
    for place in map.backends.iter().filter(|place| place.takes_requests()) {
        let replicas = place.service.as_deref().unwrap_or_default();
        let _ = writeln!(
            text,
            "\n# shard {}\nupstream {} {{",
            shown(&place.shard_key),
            upstream(&map.keyspace, place)
        );
        for replica in replicas.split(", ") {
            let _ = writeln!(text, "    server {replica};");
        }
        let _ = writeln!(text, "    keepalive {KEEPALIVE};\n}}");
    }
    text
}

/// Returns the part for a location: it sets $shardmaster_upstream and $shardmaster_shard, or refuses.
pub fn location(map: &KeyspaceMap, key_from: &KeySource) -> String {
    // nginx loads each configuration into a new Lua machine, so a name is enough.
    let name = format!("shardmaster.keyspace.{}", shown(&map.keyspace.name));
    let name = lua::quoted(&name);
    let (preload, space) = (indented(&lua::preload(), 8), indented(&lua::space(map), 8));
    let space = space.trim();
    let (source, missing) = (key_from.as_lua(), key_from.shown());
    let key_type = map.keyspace.key_type().as_str();
    format!(
        r#"set $shardmaster_shard "";
set $shardmaster_refused "";
set_by_lua_block $shardmaster_upstream {{
    local route = package.loaded[{name}]
    if not route then
{preload}
        route = require("shardmaster.route") {space}
        package.loaded[{name}] = route
    end
    local key = require("shardmaster.request")({source})
    if not key then
        ngx.var.shardmaster_refused = "missing"
        return ""
    end
    local place, shard = route(key)
    if not place then
        ngx.var.shardmaster_refused = shard
        return ""
    end
    ngx.var.shardmaster_shard = shard
    return place
}}
if ($shardmaster_refused = "missing") {{ return 400 "no key in {missing}\n"; }}
if ($shardmaster_refused = "malformed") {{ return 400 "the key in {missing} is not of type {key_type}\n"; }}
if ($shardmaster_refused = "unassigned") {{ return 404 "the key in {missing} is not assigned\n"; }}
if ($shardmaster_refused = "closed") {{ return 503 "the shard of the key in {missing} is disabled\n"; }}
if ($shardmaster_refused = "unserved") {{ return 503 "the shard of the key in {missing} has no service\n"; }}
"#
    )
}

/// Returns everything for http { }, for a configuration that has no server of its own.
pub fn server(map: &KeyspaceMap, key_from: &KeySource, listen: &Address) -> String {
    let (upstreams, listen) = (upstreams(map), listen.as_str());
    let location = indented(&location(map, key_from), 8);
    format!(
        r#"{upstreams}
server {{
    listen {listen};

    location / {{
{location}
        proxy_pass http://$shardmaster_upstream;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $http_host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
}}
"#
    )
}
