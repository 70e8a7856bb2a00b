//! Configurations of gateways: programs in front of an application's services, or of the shards themselves, that need
//! to know where keys are.

mod address;
mod key_source;
mod lua;
mod map;
mod nginx;
mod pgbouncer;
pub mod service;
mod text;

use crate::catalog::gateway::{self, GatewayBackend};
use crate::catalog::keyspace::{self, Keyspace};
use crate::error::{Failure, SqlState, invalid};
use address::Address;
use key_source::KeySource;
use map::KeyspaceMap;
use std::collections::HashSet;
use text::{Config, shown};

/// A request for a configuration.
pub struct GatewayRequest {
    pub gateway: String,
    pub keyspace: String,
    pub key_from: String,
    pub listen: String,
}

/// Whether the configuration contains keys: PgBouncer only knows databases.
pub fn has_routes(request: &GatewayRequest) -> bool {
    request.gateway != "pgbouncer"
}

pub fn config(request: &GatewayRequest) -> Result<Config, Failure> {
    let keyspace = keyspace::find(&request.keyspace)?;
    let key_from = KeySource::parse(&request.key_from)?;
    let listen = Address::parse_listen(&request.listen)?;
    match request.gateway.as_str() {
        "nginx" => with_map(request, keyspace, |map| nginx::server(map, &key_from, &listen)),
        "nginx-upstreams" => with_map(request, keyspace, nginx::upstreams),
        "nginx-location" => with_map(request, keyspace, |map| nginx::location(map, &key_from)),
        "lua" => with_map(request, keyspace, lua::module),
        "pgbouncer" => pgbouncer::databases(),
        other => Err(invalid(
            "gateway",
            format!(
                "\"{other}\" is not one of \"nginx\", \"nginx-upstreams\", \"nginx-location\", \"lua\", \"pgbouncer\""
            ),
        )),
    }
}

fn with_map(
    request: &GatewayRequest,
    keyspace: Keyspace,
    write: impl FnOnce(&KeyspaceMap) -> String,
) -> Result<Config, Failure> {
    // They are read in this order: the shards are read last, so they include each shard that an entry names.
    let found = gateway::entries(&keyspace.name);
    let places = gateway::backends();
    let entries = lua::entries(&keyspace, &places, &found);
    let map = KeyspaceMap { version: found.version, keyspace, backends: places, entries };
    let used: HashSet<i32> = found.entries.iter().map(|entry| entry.shard_index).collect();
    let without =
        |place: &&GatewayBackend| place.is_open && place.service.is_none() && used.contains(&place.index);
    let names: Vec<String> =
        map.backends.iter().filter(without).map(|place| shown(&place.shard_key)).collect();
    let warning = (!names.is_empty()).then(|| {
        let message = format!("shards without a service hold keys of keyspace {}", shown(&request.keyspace));
        Failure::new(SqlState::NOT_IN_STATE, message)
            .detail(names.join(", "))
            .hint("Requests for them get 503. Set the addresses of their service with shard_set_service().")
    });
    Ok(Config { text: heading(request, &map) + &write(&map), warning })
}

/// Returns a comment for the gateway's own files that describes what they are and how they were made.
fn heading(request: &GatewayRequest, map: &KeyspaceMap) -> String {
    let comment = if request.gateway == "lua" { "--" } else { "#" };
    let quote = |text: &String| format!("'{}'", shown(text).trim_matches('"').replace('\'', "''"));
    let mut arguments = vec![quote(&request.gateway), quote(&request.keyspace)];
    if matches!(request.gateway.as_str(), "nginx" | "nginx-location") {
        arguments.push(format!("key_from => {}", quote(&request.key_from)));
    }
    format!(
        "{comment} Made by shard_gateway_config({}).\n{comment} Strategy {}, keys of type {}, routing version {}.\n",
        arguments.join(", "),
        map.keyspace.strategy.name(),
        map.keyspace.key_type().as_str(),
        map.version
    )
}
