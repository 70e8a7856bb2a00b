//! Keys that are numbers or uuids, for calls that take a key as its text.

use super::{assignment, history, on_primary, placement, routing};
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

fn text<T: ToString>(key: Option<T>) -> Option<String> {
    key.map(|key| key.to_string())
}

/// Returns the texts of an array. shard_assign_many() has no such forms, because a literal would fit all of them.
fn texts<T: ToString>(keys: Option<Vec<Option<T>>>) -> Option<Vec<Option<String>>> {
    keys.map(|keys| keys.into_iter().map(text).collect())
}

/// Makes the forms of a call for keys of type bigint and uuid: attributes, the names of both, the call that takes a
/// text, the key's parameter, the other parameters, and the result.
macro_rules! for_key_types {
    ($($(#[$attribute:meta])* [$bigint:ident, $uuid:ident] = $module:ident::$call:ident
       ($key:ident, $($other:ident: [$($of:tt)+]),*) -> [$($result:tt)+] $($as_text:ident)?;)+) => {$(
        $(#[$attribute])*
        pub fn $bigint($key: Option<i64>, $($other: $($of)+),*) -> $($result)+ {
            $module::$call(text($key)$(.$as_text())?, $($other),*)
        }

        $(#[$attribute])*
        pub fn $uuid($key: Option<Uuid>, $($other: $($of)+),*) -> $($result)+ {
            $module::$call(text($key)$(.$as_text())?, $($other),*)
        }
    )+};
}

for_key_types! {
    #[pg_extern(name = "shard_of", volatile, parallel_restricted)]
    [shard_of_bigint, shard_of_uuid] = routing::shard_of(
        key,
        intent: [default!(Option<&str>, "'write'")],
        keyspace: [default!(Option<&str>, "'default'")]
    ) -> [Result<String, ErrorReport>] as_deref;

    #[allow(clippy::type_complexity)]
    #[pg_extern(name = "shard_route", volatile, parallel_restricted)]
    [shard_route_bigint, shard_route_uuid] = routing::shard_route(
        key,
        intent: [default!(Option<&str>, "'write'")],
        keyspace: [default!(Option<&str>, "'default'")]
    ) -> [Result<
        TableIterator<
            'static,
            (
                name!(shard_key, String),
                name!(conninfo, Option<String>),
                name!(routing_version, i64),
                name!(namespace, String),
            ),
        >,
        ErrorReport,
    >] as_deref;

    #[pg_extern(name = "shard_route_at", volatile, parallel_safe, security_definer)]
    #[search_path(pg_catalog, pg_temp)]
    [shard_route_at_bigint, shard_route_at_uuid] = history::shard_route_at(
        key,
        version: [Option<i64>],
        keyspace: [default!(Option<String>, "'default'")]
    ) -> [Result<String, ErrorReport>];

    #[pg_extern(name = "shard_assign", volatile, parallel_unsafe, security_definer)]
    #[search_path(pg_catalog, pg_temp)]
    [shard_assign_bigint, shard_assign_uuid] = assignment::shard_assign(
        key,
        shard_key: [Option<String>],
        keyspace: [default!(Option<String>, "'default'")],
        force: [default!(Option<bool>, "false")],
        reason: [default!(Option<String>, "NULL")]
    ) -> [Result<i64, ErrorReport>];

    #[pg_extern(name = "shard_unassign", volatile, parallel_unsafe, security_definer)]
    #[search_path(pg_catalog, pg_temp)]
    [shard_unassign_bigint, shard_unassign_uuid] = assignment::shard_unassign(
        key,
        keyspace: [default!(Option<String>, "'default'")]
    ) -> [Result<i64, ErrorReport>];

    #[pg_extern(name = "shard_place_tenant", volatile, parallel_unsafe, security_definer)]
    #[search_path(pg_catalog, pg_temp)]
    [shard_place_tenant_bigint, shard_place_tenant_uuid] = placement::shard_place_tenant(
        tenant,
        strategy: [default!(Option<String>, "'fill_first'")],
        keyspace: [default!(Option<String>, "'default'")]
    ) -> [Result<String, ErrorReport>];
}

#[pg_extern(name = "shard_assign_keys", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_assign_keys_text(
    keys: Option<Vec<Option<String>>>,
    shard_key: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    force: default!(Option<bool>, "false"),
    reason: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_assign_keys")?;
    assignment::shard_assign_many(keys, shard_key, keyspace, force, reason)
}

#[pg_extern(name = "shard_assign_keys", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_assign_keys_bigint(
    keys: Option<Vec<Option<i64>>>,
    shard_key: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    force: default!(Option<bool>, "false"),
    reason: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_assign_keys")?;
    assignment::shard_assign_many(texts(keys), shard_key, keyspace, force, reason)
}

#[pg_extern(name = "shard_assign_keys", volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_assign_keys_uuid(
    keys: Option<Vec<Option<Uuid>>>,
    shard_key: Option<String>,
    keyspace: default!(Option<String>, "'default'"),
    force: default!(Option<bool>, "false"),
    reason: default!(Option<String>, "NULL"),
) -> Result<i64, ErrorReport> {
    on_primary("shard_assign_keys")?;
    assignment::shard_assign_many(texts(keys), shard_key, keyspace, force, reason)
}

extension_sql_file!(
    "../../sql/comments/typed_keys.sql",
    name = "comments_typed_keys",
    requires = [
        shard_of_bigint,
        shard_of_uuid,
        shard_route_bigint,
        shard_route_uuid,
        shard_route_at_bigint,
        shard_route_at_uuid,
        shard_assign_bigint,
        shard_assign_uuid,
        shard_unassign_bigint,
        shard_unassign_uuid,
        shard_place_tenant_bigint,
        shard_place_tenant_uuid,
        shard_assign_keys_text,
        shard_assign_keys_bigint,
        shard_assign_keys_uuid
    ]
);

extension_sql_file!(
    "../../sql/assign_found.sql",
    name = "assign_found",
    requires = ["comments_assignment", "comments_misplaced", "split_metrics", "own_calls"]
);
