//! Configurations for PgBouncer: one database for each shard, with the shard's name.

use super::text::{Config, shown};
use crate::catalog::gateway::{self, Database};
use crate::catalog::shard::conninfo_for_clients;
use crate::error::{Failure, SqlState};
use crate::remote::conninfo::Conninfo;
use std::fmt::Write;

/// The name of PgBouncer's own console.
const CONSOLE: &str = "pgbouncer";

/// The greatest length of a database's name in PgBouncer, in bytes. Its file accepts only plain names, with or without
/// quotes.
const LONGEST_NAME: usize = 63;

/// Returns the section [databases]. It contains all shards that hold rows, of every keyspace: a split's target has to
/// be known before the first client asks for it.
pub fn databases() -> Result<Config, Failure> {
    let mut text = String::from("; Made by shard_gateway_config('pgbouncer').\n[databases]\n");
    let mut left_out = Vec::new();
    for database in gateway::databases() {
        match line(&database)? {
            Ok(line) => text += &line,
            Err(reason) => {
                let why = format!("{}: {reason}", shown(&database.shard_key));
                let _ = writeln!(text, "; left out: {why}");
                left_out.push(why);
            }
        }
    }
    let warning = (!left_out.is_empty()).then(|| {
        Failure::new(SqlState::NOT_IN_STATE, "shards are left out that PgBouncer cannot use")
            .detail(left_out.join("; "))
            .hint("Give such a shard a client_conninfo that names one host.")
    });
    Ok(Config { text, warning })
}

/// Returns a line of the section, or the reason why there is none.
fn line(database: &Database) -> Result<Result<String, &'static str>, Failure> {
    let name = &database.shard_key;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if name == CONSOLE || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return Ok(Err("PgBouncer accepts no database of this name"));
    }
    let given = conninfo_for_clients(database.conninfo.as_deref(), database.client_conninfo.as_deref())?;
    let mut settings: Vec<(&str, String)> = Vec::new();
    match given.as_deref().map(Conninfo::parse).transpose()? {
        Some(conninfo) => {
            let Some(host) = conninfo.get("hostaddr").or_else(|| conninfo.get("host")) else {
                return Ok(Err("its connection string names no host"));
            };
            if host.contains(',') {
                return Ok(Err("its connection string names several hosts"));
            }
            settings.push(("host", host.to_owned()));
            settings.extend(conninfo.get("port").map(|port| ("port", port.to_owned())));
            settings.extend(conninfo.get("dbname").map(|dbname| ("dbname", dbname.to_owned())));
        }
        // This is the master's own database, for a PgBouncer beside it.
        None => {
            settings.push(("host", database.socket_directory.clone()));
            settings.push(("port", database.port.clone()));
            settings.push(("dbname", database.this_database.clone()));
        }
    }
    if database.namespace != "public" {
        let namespace = database.namespace.replace('"', "\"\"");
        settings.push(("connect_query", format!("SET search_path = \"{namespace}\"")));
    }
    let settings: Vec<String> =
        settings.into_iter().map(|(keyword, value)| format!("{keyword}={}", quoted(&value))).collect();
    Ok(Ok(format!("{name} = {}\n", settings.join(" "))))
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}
