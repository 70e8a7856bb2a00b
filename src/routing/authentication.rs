//! How the mover may authenticate: what an endpoint must have for each kind.

use crate::catalog::endpoint::Endpoint;
use crate::catalog::keychain;
use crate::catalog::shard::POSTGRES;
use crate::error::{Failure, invalid};
use crate::keychain::kind::{self, CredentialKind, SecretForm, TokenSource};
use crate::remote::conninfo::Conninfo;

/// Returns the kind of a credential, which does not change before the transaction ends.
pub fn kind_of(alias: &str) -> Result<&'static CredentialKind, Failure> {
    keychain::lock_kind(alias).and_then(|name| kind::by_name(&name)).ok_or_else(|| keychain::unknown(alias))
}

/// Refuses an endpoint by which no session could be opened, or which would show a secret to a listener. For shards
/// that nothing connects to, the names are accepted as they are.
pub fn require(shard_kind: &str, endpoint: &Endpoint) -> Result<(), Failure> {
    let Some(kind) = kind::by_name(&endpoint.auth_kind) else {
        let problem = format!("\"{}\" is not one of {}", endpoint.auth_kind, kind::names());
        return Err(invalid("auth_kind", problem));
    };
    if shard_kind != POSTGRES {
        return Ok(());
    }
    match (&endpoint.credential_alias, kind.has_secret()) {
        (None, true) => {
            let problem = format!("kind \"{}\" needs a credential, by its credential_alias", kind.name);
            return Err(invalid("auth_kind", problem));
        }
        (Some(alias), has_secret) if !has_secret || kind_of(alias)?.name != kind.name => {
            let problem = if has_secret {
                format!("credential \"{alias}\" is not of kind \"{}\"", kind.name)
            } else {
                format!("kind \"{}\" uses no credential", kind.name)
            };
            return Err(invalid("credential_alias", problem));
        }
        _ => {}
    }
    match (&endpoint.conninfo, kind.way) {
        (_, SecretForm::Libpq) => Ok(()),
        (None, _) => Err(invalid(
            "auth_kind",
            "a shard of this database is reached with the role shardmaster.local_user",
        )),
        (Some(conninfo), way) => require_way(way, &Conninfo::parse(conninfo)?),
    }
}

fn require_way(way: SecretForm, conninfo: &Conninfo) -> Result<(), Failure> {
    if way == SecretForm::Token(TokenSource::Aws) && !is_one_host(conninfo) {
        let problem = "a token of kind \"aws_iam\" is signed for one host by its name";
        return Err(invalid("conninfo", problem).hint(
            "Name the instance's or the cluster's own endpoint as host, and no other. Its address may be in hostaddr.",
        ));
    }
    let mode = conninfo.get("sslmode");
    let is_proven = matches!(mode, Some("verify-ca" | "verify-full"));
    // SCRAM is bound to the connection from `require` on. Going without must be configured explicitly: an attacker in
    // between may ask for the password itself.
    let is_said = is_proven || matches!(mode, Some("require" | "disable"));
    let problem = match way {
        SecretForm::Peer if !is_local(conninfo) => {
            "kind \"peer\" is for a server on this machine: host has to be the directory of its socket"
        }
        SecretForm::Password if !is_said && !is_local(conninfo) => {
            "kind \"password\" needs sslmode=verify-full, verify-ca or require; or disable on a trusted network"
        }
        SecretForm::Certificate if !is_proven => "kind \"mtls_cert\" needs sslmode=verify-full, or verify-ca",
        // The answering server gets the token as it is.
        SecretForm::Token(_) if !is_proven && !is_local(conninfo) => {
            "a token is sent as plain text: its kind needs sslmode=verify-full, or verify-ca"
        }
        SecretForm::Token(_) if conninfo.get("user").is_none() => "a token belongs to a user: name it",
        _ => return Ok(()),
    };
    Err(invalid("conninfo", problem))
}

/// Whether it is one host: neither several nor an address alone, nor what a service or the environment has.
fn is_one_host(conninfo: &Conninfo) -> bool {
    let is_one = |keyword| conninfo.get(keyword).is_none_or(|value| !value.contains(','));
    conninfo.get("host").is_some_and(|host| !host.is_empty())
        && ["host", "hostaddr", "port"].into_iter().all(is_one)
}

/// Whether it uses only sockets in this machine's file system.
fn is_local(conninfo: &Conninfo) -> bool {
    let is_socket = |host: &str| host.starts_with('/') || host.starts_with('@');
    conninfo.get("hostaddr").is_none()
        && conninfo.get("service").is_none()
        && conninfo.get("host").is_some_and(|hosts| hosts.split(',').all(is_socket))
}
