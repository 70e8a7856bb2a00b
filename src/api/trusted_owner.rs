//! The roles whose code the mover may run on a shard.

use super::on_primary;
use crate::agent::{database_identity as there, session, untrusted_code};
use crate::catalog::caller::Caller;
use crate::catalog::database_location;
use crate::catalog::shard::{self, Shard};
use crate::catalog::trusted_owner;
use crate::error::{Failure, SqlState, invalid, required};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: what it does depends on who calls.
#[pg_extern(volatile, parallel_unsafe)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_trust_owner(shard_key: Option<String>, role: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_trust_owner")?;
    Ok(Caller::as_owner(|caller| trust(shard_key, role, caller))?)
}

fn trust(shard_key: Option<String>, role: Option<String>, caller: &Caller) -> Result<(), Failure> {
    let (shard, role) = of_rows(shard_key, role)?;
    let may_anywhere = caller.is_superuser();
    if database_location::is_known_here(&shard) && !may_anywhere {
        return Err(is_masters(&shard));
    }
    let mut session = session::open(&shard, "trust")?;
    if !may_anywhere {
        let own = database_location::own_identity().ok_or_else(|| is_masters(&shard))?;
        // An address proves nothing, and what a worker has learned of it may be outdated.
        if there::is_masters(&mut session, &shard, &own)? {
            return Err(is_masters(&shard));
        }
    }
    let number = untrusted_code::number_of(&mut session, &role)?;
    trusted_owner::insert(&shard, &role, number, caller);
    Ok(())
}

/// On such a shard, the mover is the extension's owner or has equal rights.
fn is_masters(shard: &Shard) -> Failure {
    Failure::new(
        SqlState::INSUFFICIENT_PRIVILEGE,
        format!("permission denied to trust a role on shard \"{}\"", shard.shard_key),
    )
    .hint("Only a superuser may give such rights. The shard is a schema of the master's own database, or its mover is a superuser of the master's own server.")
}

#[pg_extern(volatile, parallel_unsafe, security_definer)]
#[search_path(pg_catalog, pg_temp)]
pub fn shard_distrust_owner(shard_key: Option<String>, role: Option<String>) -> Result<(), ErrorReport> {
    on_primary("shard_distrust_owner")?;
    let (shard, role) = of_rows(shard_key, role)?;
    trusted_owner::delete(&shard, &role);
    Ok(())
}

/// Returns the shard, which has to hold rows, and the role.
fn of_rows(shard_key: Option<String>, role: Option<String>) -> Result<(Shard, String), Failure> {
    let (shard_key, role) = (required(shard_key, "shard_key")?, required(role, "role")?);
    let shard = shard::by_key(&shard_key)?;
    if !shard.holds_rows() {
        return Err(invalid("shard_key", format!("shard \"{shard_key}\" is of kind \"{}\"", shard.kind))
            .hint("Only shards of kind \"postgres\" have roles."));
    }
    if role.is_empty() {
        return Err(invalid("role", "it is empty").hint("Give the name of a role on the shard's server."));
    }
    Ok((shard, role))
}

extension_sql_file!("../../sql/trusted_owners.sql", name = "trusted_owners");

extension_sql_file!(
    "../../sql/comments/trusted_owner.sql",
    name = "comments_trusted_owner",
    requires = [shard_trust_owner, shard_distrust_owner]
);
