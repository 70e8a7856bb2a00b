//! Credentials of shards: set, drop, list, encrypt again. None of these functions shows a secret.

use super::json_text::JsonText;
use super::rows::RowSet;
use super::{on_primary, row};
use crate::catalog::caller::Caller;
use crate::catalog::keychain;
use crate::error::required;
use crate::keychain::{encrypt, redacted_log};
use crate::routing::credential;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: what it does depends on who calls.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_credential_set(
    alias: Option<String>,
    auth_kind: Option<String>,
    secret: Option<JsonText>,
) -> Result<(), ErrorReport> {
    redacted_log::hide_statement();
    on_primary("shard_credential_set")?;
    let (alias, auth_kind) = (required(alias, "alias")?, required(auth_kind, "auth_kind")?);
    let JsonText(secret) = required(secret, "secret")?;
    Ok(Caller::as_owner(|caller| credential::set(&alias, &auth_kind, &secret, caller))?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_credential_drop(alias: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_credential_drop")?;
    Ok(credential::drop(&required(alias, "alias")?)?)
}

/// SECURITY INVOKER, as the first one.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_credential_hold(alias: Option<String>, held_for: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_credential_hold")?;
    let (alias, held_for) = (required(alias, "alias")?, required(held_for, "held_for")?);
    Ok(Caller::as_owner(|caller| credential::hold(&alias, &held_for, caller))?)
}

/// SECURITY INVOKER, as the first one.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_credential_release(
    alias: Option<String>,
    held_for: Option<String>,
) -> Result<bool, ErrorReport> {
    on_primary("shard_credential_release")?;
    let (alias, held_for) = (required(alias, "alias")?, required(held_for, "held_for")?);
    Ok(Caller::as_owner(|caller| keychain::release(&alias, &held_for, caller)))
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_keychain_rotate() -> Result<i64, ErrorReport> {
    on_primary("shard_keychain_rotate")?;
    Ok(credential::rotate()?)
}

#[pg_extern(volatile, parallel_unsafe, security_definer, requires = ["rows"])]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_credentials() -> RowSet<row::Credential> {
    RowSet::new(keychain::list().into_iter().map(|listed| {
        let key = encrypt::key_id(&listed.credential.sealed);
        let credential = listed.credential;
        (credential.alias, credential.kind, listed.shards, key, listed.set_by, listed.updated_at)
    }))
}

extension_sql_file!(
    "../../sql/comments/keychain.sql",
    name = "comments_keychain",
    requires = [
        shard_credential_set,
        shard_credential_drop,
        shard_credential_hold,
        shard_credential_release,
        shard_keychain_rotate,
        shard_credentials
    ]
);
