//! Adding, changing and removing credentials of shards.

use super::endpoint;
use crate::catalog::caller::Caller;
use crate::catalog::keychain::{self as stored, StoredCredential};
use crate::catalog::{endpoint as place, name, shard};
use crate::error::{Failure, SqlState, invalid};
use crate::keychain::kind::{self, CredentialKind};
use crate::keychain::secret::Secret;
use crate::keychain::{encrypt, error, master_key};
use crate::words::{listed, quoted};

fn in_use(alias: &str, shards: &[String], why: &str) -> Failure {
    let text = format!("credential \"{alias}\" is in use by shard {}", quoted(shards));
    Failure::new(SqlState::IN_USE, text).hint(why)
}

/// Adds a credential or replaces its secret; `secret` is a JSON object. Sessions that are opened from now on use it,
/// those of splits with their next step.
pub fn set(alias: &str, kind: &str, secret: &[u8], caller: &Caller) -> Result<(), Failure> {
    if let Some(problem) = name::problem(alias) {
        return Err(invalid("alias", problem));
    }
    let kind = kind_with_secret(kind)?;
    let secret = Secret::of(kind, secret)?;
    require_right(kind, &secret, caller)?;
    let shards = loop {
        if let Some(shards) = store(alias, kind, &secret, caller)? {
            break shards;
        }
    };
    for shard_key in &shards {
        let shard = shard::by_key(shard_key)?;
        place::touch(&shard);
        endpoint::changed(&shard);
    }
    Ok(())
}

/// Stores a credential and returns the shards that use it. Returns None if another session has added it meanwhile,
/// perhaps with shards.
fn store(
    alias: &str,
    kind: &CredentialKind,
    secret: &Secret,
    caller: &Caller,
) -> Result<Option<Vec<String>>, Failure> {
    // The shards are locked before the credential, in the same order as by sessions that change their endpoints.
    stored::lock_shards_with(alias);
    stored::begin_change();
    let before = stored::lock(alias);
    let shards = stored::shards_with(alias);
    if before.as_ref().is_some_and(|before| before.kind != kind.name) && !shards.is_empty() {
        let why = "Set one of the other kind under another alias, and name it with shard_set_endpoint().";
        return Err(in_use(alias, &shards, why));
    }
    let keys = master_key::all()?;
    let first = keys.first().ok_or_else(error::no_master_key)?;
    let sealed = first.seal(alias, kind.name, &secret.json())?;
    let credential = StoredCredential { alias: alias.to_owned(), kind: kind.name.to_owned(), sealed };
    if before.is_some() {
        stored::replace(&credential, caller);
    } else if !stored::insert(&credential, caller) {
        return Ok(None);
    }
    Ok(Some(shards))
}

/// Requires a superuser for anything that the server would run or read, and for the mover's identity: a shard may
/// admit some roles without a proof, for example on its own sockets.
fn require_right(kind: &CredentialKind, secret: &Secret, caller: &Caller) -> Result<(), Failure> {
    let (what, hint) = if kind.acts_as_server() {
        (
            format!("a credential of kind \"{}\"", kind.name),
            "The master's server runs or reads what it names. A superuser can set it.",
        )
    } else if secret.get("username").is_some() {
        (
            "a credential with a username".to_owned(),
            "Leave it out, because the connection string names the mover. Or let a superuser set it.",
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

fn kind_with_secret(name: &str) -> Result<&'static CredentialKind, Failure> {
    let kinds = || kind::KINDS.iter().filter(|kind| kind.has_secret());
    kinds().find(|kind| kind.name == name).ok_or_else(|| {
        let names = listed(kinds().map(|kind| kind.name));
        invalid("auth_kind", format!("\"{name}\" is not one of {names}"))
    })
}

pub fn drop(alias: &str) -> Result<(), Failure> {
    stored::begin_change();
    stored::lock(alias).ok_or_else(|| stored::unknown(alias))?;
    let shards = stored::shards_with(alias);
    if !shards.is_empty() {
        return Err(in_use(alias, &shards, "Give the shard another one with shard_set_endpoint()."));
    }
    if let Some((held_for, held_by)) = stored::hold_of(alias) {
        let text = format!("credential \"{alias}\" is held for \"{held_for}\" by role \"{held_by}\"");
        return Err(Failure::new(SqlState::IN_USE, text)
            .hint("That role, or a superuser, can release it with shard_credential_release()."));
    }
    stored::delete(alias);
    Ok(())
}

/// Keeps a credential from being dropped. A role that may not see credentials learns that it exists.
pub fn hold(alias: &str, held_for: &str, caller: &Caller) -> Result<(), Failure> {
    if held_for.is_empty() {
        return Err(invalid("held_for", "it is empty"));
    }
    stored::lock_kind(alias).ok_or_else(|| stored::unknown(alias))?;
    stored::hold(alias, held_for, caller);
    Ok(())
}

/// Encrypts all credentials anew under the first of the keys, and returns their number. If one cannot be decrypted,
/// all of them stay as they are: removing the old keys after this call loses nothing.
pub fn rotate() -> Result<i64, Failure> {
    stored::begin_rotation();
    let keys = master_key::all()?;
    let first = keys.first().ok_or_else(error::no_master_key)?;
    let all = stored::lock_all();
    if all.len() != stored::count_latest() {
        let text = "could not encrypt all credentials: some were added since this transaction began";
        return Err(
            Failure::new(SqlState::SERIALIZATION_FAILURE, text).hint("Call it again, in a new transaction.")
        );
    }
    let (mut count, mut damaged) = (0, Vec::new());
    for credential in all {
        match encrypt::open(&keys, &credential.alias, &credential.kind, &credential.sealed) {
            Err(error) => damaged.push((credential.alias, error)),
            Ok(plain) if damaged.is_empty() => {
                let sealed = first.seal(&credential.alias, &credential.kind, &plain)?;
                stored::seal_anew(&credential.alias, sealed);
                count += 1;
            }
            Ok(_) => {}
        }
    }
    if damaged.is_empty() { Ok(count) } else { Err(cannot_be_opened(&damaged)) }
}

fn cannot_be_opened(damaged: &[(String, Failure)]) -> Failure {
    let aliases = quoted(damaged.iter().map(|(alias, _)| alias));
    let reasons: Vec<String> = damaged.iter().map(|(_, error)| error.to_string()).collect();
    let is_changed = damaged.iter().any(|(_, error)| error.sqlstate == error::CHANGED);
    let state = if is_changed { error::CHANGED } else { SqlState::NOT_IN_STATE };
    let text = format!("credentials that cannot be decrypted: {aliases}");
    Failure::new(state, text).detail(reasons.join("\n")).hint(
        "For each, call shard_credential_set() or shard_credential_drop(), or add the master key that is missing. Then call shard_keychain_rotate() again. Nothing was encrypted again, so that the old master keys are still needed.",
    )
}
