//! The first message of a session that queries for a role of the master.

use super::error;
use super::login::Entrance;
use crate::error::Failure;
use crate::remote::RemoteError;
use crate::remote::quote::{array_literal, ident, literal};
use crate::remote::result::Rows;
use crate::server::sql;

/// The settings by which the caller's session reads texts and names.
pub struct Manners {
    /// The schema in which unqualified names are searched first.
    first_schema: Option<String>,
    time_zone: String,
    /// The order in `DateStyle`, without its format.
    date_order: String,
}

impl Manners {
    pub fn of_caller() -> Manners {
        sql::read_one(
            "SELECT pg_catalog.current_setting('TimeZone'),
                    pg_catalog.split_part(pg_catalog.current_setting('DateStyle'), ', ', 2)",
            &[],
            |row| Manners { first_schema: None, time_zone: row.value(1), date_order: row.value(2) },
        )
        .unwrap_or_else(|| Manners {
            first_schema: None,
            time_zone: "UTC".to_owned(),
            date_order: "MDY".to_owned(),
        })
    }

    pub fn with_first(self, schema: Option<&str>) -> Manners {
        Manners { first_schema: schema.map(str::to_owned), ..self }
    }
}

/// Returns the message. Texts come in a form that all settings of the caller read alike. Other settings of the role
/// stay: a timeout or a memory limit is there on purpose. Unqualified names are searched first among the shard's
/// tables, and never in another shard's: what a shard lacks would otherwise be read, or changed, on that one. The
/// server's own functions and operators come before those of the database's owner, who may set another order.
pub fn message(entrance: &Entrance, schemas: &[String], manners: &Manners, version: i32) -> String {
    let shard = &entrance.shard;
    let schemas = manners.first_schema.iter().chain(schemas).map(|schema| ident(schema));
    let path: Vec<String> = std::iter::once("pg_temp".to_owned()).chain(schemas).collect();
    let left_out: Vec<String> =
        entrance.others.iter().cloned().chain(std::iter::once("pg_catalog".to_owned())).collect();
    let notices_end = if version >= 140_000 { "SET client_connection_check_interval = '1s';" } else { "" };
    format!(
        "SET DateStyle = 'ISO, {}'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1; SET bytea_output = 'hex'; SET lc_monetary = 'C';
         SET client_encoding = 'UTF8'; SET standard_conforming_strings = on; SET default_transaction_read_only = off;
         SET client_min_messages = error; {notices_end}
         SELECT pg_catalog.set_config('TimeZone', {}, false), pg_catalog.set_config('shardmaster_query.shard', {}, false),
                pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', {},
                    (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(s.name), ', ' ORDER BY s.n)
                       FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS s (name, n)
                      WHERE s.name::pg_catalog.text OPERATOR(pg_catalog.<>) ALL ({}::pg_catalog.text[]))), false);
         SELECT session_user, pg_catalog.pg_is_in_recovery(),
                CASE WHEN r.rolsuper THEN 'a superuser'
                     WHEN r.rolreplication THEN 'a role for replication'
                     WHEN pg_catalog.pg_has_role(r.oid, pg_catalog.to_regrole(pg_catalog.quote_ident({})), 'MEMBER') THEN 'a member of the mover'
                     WHEN current_user OPERATOR(pg_catalog.<>) session_user THEN 'another one by its own settings' END,
                pg_catalog.getdatabaseencoding()
           FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user",
        manners.date_order,
        literal(&manners.time_zone),
        literal(&shard.shard_key),
        literal(&path.join(", ")),
        array_literal(&left_out),
        literal(&entrance.mover),
    )
}

/// Checks the shard's answer and returns its encoding.
pub fn require(entrance: &Entrance, answer: &Rows) -> Result<String, Failure> {
    let cells: Vec<&str> = answer.cells().into_iter().map(Option::unwrap_or_default).collect();
    let (shard, username) = (&entrance.shard.shard_key, &entrance.username);
    match cells.as_slice() {
        [user, "f", "", encoding] if user == username => Ok((*encoding).to_owned()),
        [user, "f", what, _] if user == username => Err(error::too_much(shard, username, what)),
        [user, "f", _, _] => Err(error::other_role(shard, username, user)),
        [_, "t", _, _] => Err(error::standby_of_shard(shard)),
        _ => Err(RemoteError::unreadable(shard, "who has logged in").into()),
    }
}
