//! Credentials of shards come, change and go.

use super::authentication::{invalid, unknown};
use super::endpoint;
use crate::catalog::caller::Caller;
use crate::catalog::keychain::{self as stored, Credential};
use crate::catalog::{endpoint as place, name, shard};
use crate::error::{Failure, SqlState};
use crate::keychain::error::KeychainError;
use crate::keychain::kind::{self, Kind};
use crate::keychain::secret::Secret;
use crate::keychain::{master_key, seal};

fn in_use(alias: &str, shards: &[String], why: &str) -> Failure {
    let names: Vec<String> = shards.iter().map(|shard| format!("\"{shard}\"")).collect();
    let text = format!("credential \"{alias}\" is in use by shard {}", names.join(", "));
    Failure::new(SqlState::IN_USE, text).hint(why)
}

/// `secret` is a JSON object. Makes a credential or puts another secret in the place of the one that there was: sessions that
/// are opened from now on use it, those of splits with their next step.
pub fn set(alias: &str, kind: &str, secret: &[u8], caller: &Caller) -> Result<(), Failure> {
    if let Some(problem) = name::problem(alias) {
        return Err(invalid("alias", problem));
    }
    let kind = kind_with_secret(kind)?;
    let secret = Secret::of(kind, secret)?;
    require_right(kind, &secret, caller)?;
    // Before the credential, as whoever says where they are takes them.
    stored::lock_shards_with(alias);
    let before = stored::lock(alias);
    let shards = stored::shards_with(alias);
    if before.is_some_and(|before| before.kind != kind.name) && !shards.is_empty() {
        let why = "Set one of the other kind under another alias, and name that with shard_set_endpoint().";
        return Err(in_use(alias, &shards, why));
    }
    let keys = master_key::all()?;
    let first = keys.first().ok_or(KeychainError::NoMasterKey)?;
    let sealed = first.seal(alias, kind.name, &secret.json())?;
    let credential = Credential { alias: alias.to_owned(), kind: kind.name.to_owned(), sealed };
    stored::store(&credential, caller);
    for shard_key in &shards {
        let shard = shard::by_key(shard_key)?;
        place::touch(&shard);
        endpoint::changed(&shard);
    }
    Ok(())
}

/// Below superuser nothing is set that the server would run or read, nor who the mover is: a shard
/// may let some roles in without a proof, on its own sockets say.
fn require_right(kind: &Kind, secret: &Secret, caller: &Caller) -> Result<(), Failure> {
    let (what, hint) = if kind.acts_as_server() {
        (
            format!("a credential of kind \"{}\"", kind.name),
            "The master's server runs or reads what it names. Let a superuser set it.",
        )
    } else if secret.get("username").is_some() {
        (
            "a credential with a username".to_owned(),
            "Leave it out: the connection string says who the mover is. Or let a superuser set it.",
        )
    } else {
        return Ok(());
    };
    if caller.is_superuser() {
        return Ok(());
    }
    let text = format!("permission denied to set {what}");
    Err(Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, text).hint(hint))
}

fn kind_with_secret(name: &str) -> Result<&'static Kind, Failure> {
    let names: Vec<&str> =
        kind::KINDS.iter().filter(|kind| kind.has_secret()).map(|kind| kind.name).collect();
    kind::by_name(name)
        .filter(|kind| kind.has_secret())
        .ok_or_else(|| invalid("auth_kind", format!("\"{name}\" is none of {}", names.join(", "))))
}

pub fn drop(alias: &str) -> Result<(), Failure> {
    stored::lock(alias).ok_or_else(|| unknown(alias))?;
    let shards = stored::shards_with(alias);
    if !shards.is_empty() {
        return Err(in_use(alias, &shards, "Give the shard another one with shard_set_endpoint()."));
    }
    stored::delete(alias);
    Ok(())
}

/// Seals all anew under the first of the keys; how many.
pub fn rotate() -> Result<i64, Failure> {
    let keys = master_key::all()?;
    let first = keys.first().ok_or(KeychainError::NoMasterKey)?;
    let mut count = 0;
    for credential in stored::lock_all() {
        let plain = seal::open(&keys, &credential.alias, &credential.kind, &credential.sealed)?;
        stored::seal_anew(&credential.alias, first.seal(&credential.alias, &credential.kind, &plain)?);
        count += 1;
    }
    Ok(count)
}
