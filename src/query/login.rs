//! The users that a role is connected to the shards as: never the mover, whose rights are for splits.

use super::error;
use crate::agent::session;
use crate::catalog::caller::Caller;
use crate::catalog::login::{self as stored, Login, LoginRole};
use crate::catalog::name;
use crate::catalog::shard::{self, Shard};
use crate::catalog::{database_location, keychain};
use crate::error::{Failure, SqlState, invalid};
use crate::remote::RemoteError;
use crate::remote::conninfo::Conninfo;
use crate::remote::params::Params;
use crate::words::quoted;
use std::time::Duration;

/// The keywords of an endpoint that determine the mover's identity.
const OF_MOVER: [&str; 7] =
    ["user", "password", "passfile", "sslcert", "sslkey", "sslpassword", "require_auth"];

/// Returns one shard, or None for all that have no login of their own.
fn named(shard_key: Option<&str>) -> Result<Option<Shard>, Failure> {
    let Some(key) = shard_key else { return Ok(None) };
    let found = shard::by_key(key)?;
    if found.holds_rows() {
        return Ok(Some(found));
    }
    Err(invalid("shard", format!("shard \"{key}\" is of kind \"{}\", which has no connections", found.kind)))
}

pub fn set(
    role: &str,
    username: &str,
    alias: Option<&str>,
    shard_key: Option<&str>,
    caller: &Caller,
) -> Result<(), Failure> {
    let shard = named(shard_key)?;
    let role = stored::role_by_name(role).ok_or_else(|| error::unknown_role(role))?;
    if let Some(problem) = name::problem(username) {
        return Err(invalid("username", problem));
    }
    let all = match &shard {
        Some(shard) => vec![shard.clone()],
        None => shard::all().into_iter().filter(Shard::holds_rows).collect(),
    };
    all.iter().try_for_each(|shard| require_no_mover(shard, username).map(|_| ()))?;
    if let Some(alias) = alias {
        keychain::lock_kind(alias).ok_or_else(|| keychain::unknown(alias))?;
    }
    stored::set(role, shard.as_ref(), username, alias, caller);
    Ok(())
}

pub fn drop(role: &str, shard_key: Option<&str>) -> Result<(), Failure> {
    let shard = named(shard_key)?;
    if stored::delete(role, shard.as_ref()) {
        return Ok(());
    }
    let which = shard_key.map_or(String::new(), |key| format!(" for shard \"{key}\""));
    let text = format!("role \"{role}\" has no login{which}");
    Err(Failure::new(SqlState::UNDEFINED_OBJECT, text).hint("shard_logins() lists them."))
}

/// Refuses the mover's user, also if another connection string of the shard determines it. Returns the mover's user.
fn require_no_mover(shard: &Shard, username: &str) -> Result<String, Failure> {
    let Some(mover) = session::mover(shard)? else {
        return Err(error::unknown_mover(&shard.shard_key));
    };
    if mover != username {
        return Ok(mover);
    }
    Err(error::is_mover(username, &shard.shard_key))
}

/// Returns the role whose logins the caller uses: its own, or those of the only one whose rights it has.
pub fn role_of(caller: &Caller) -> Result<LoginRole, Failure> {
    let mut roles = stored::roles_of(caller);
    match (roles.pop(), roles.is_empty()) {
        (Some(role), true) => Ok(role),
        (None, _) => Err(error::no_login(&caller.name())),
        (Some(last), false) => {
            let names = roles.iter().chain([&last]).map(|role| &role.name);
            Err(error::several_logins(&caller.name(), &quoted(names)))
        }
    }
}

/// How a role reaches a shard.
pub struct Entrance {
    /// The shard, with the login's credential in the place of the mover's.
    pub shard: Shard,
    pub username: String,
    /// The mover's user, which is never used.
    pub mover: String,
    /// Namespaces of other shards of its database: they are not in the search_path.
    pub others: Vec<String>,
}

/// An entrance with libpq's parameters, or why there are none.
pub type LoginWay = (Entrance, Result<Params, RemoteError>);

/// Returns how a role reaches a shard. A command for its credential is waited for as long as the shard is.
pub fn entrance(role: &LoginRole, shard: &Shard, limit: Duration) -> Result<LoginWay, Failure> {
    known(role, shard).map(|entrance| way(entrance, &role.name, limit))
}

/// Returns what the master knows of it.
pub fn known(role: &LoginRole, shard: &Shard) -> Result<Entrance, Failure> {
    let Some(login) = stored::of(role.id, shard) else {
        return Err(error::no_login_for(&role.name, &shard.shard_key));
    };
    let mover = require_no_mover(shard, &login.username)?;
    let others = database_location::namespaces_beside(shard);
    Ok(Entrance { shard: as_login(shard, &login)?, username: login.username, mover, others })
}

/// Adds the parameters, which may run a command for the credential: it is not called in a transaction of a worker.
pub fn way(entrance: Entrance, role: &str, limit: Duration) -> LoginWay {
    let params = session::parameters_within(&entrance.shard, &format!("query of {role}"), Some(limit));
    (entrance, params)
}

fn as_login(shard: &Shard, login: &Login) -> Result<Shard, Failure> {
    let place = match &shard.conninfo {
        Some(conninfo) => Conninfo::parse(conninfo)?.without(&OF_MOVER),
        None => session::here(),
    };
    let conninfo = Some(place.with("user", &login.username).text());
    let (auth_kind, credential_alias, sealed) = match login.credential.clone() {
        Some(found) => (found.kind, Some(found.alias), Some(found.sealed)),
        None => ("libpq".to_owned(), None, None),
    };
    Ok(Shard { conninfo, auth_kind, credential_alias, sealed, ..shard.clone() })
}
