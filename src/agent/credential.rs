//! How the credential of a shard changes the connection. Its secret is decrypted for one session, and wiped together
//! with libpq's parameters.

use crate::catalog::shard::Shard;
use crate::error::Failure;
use crate::keychain::command::CommandDeadline;
use crate::keychain::kind::{self, CredentialKind, SecretForm};
use crate::keychain::secret::Secret;
use crate::keychain::token::{self, Account};
use crate::keychain::{encrypt, master_key};
use crate::remote::conninfo::Conninfo;
use crate::remote::params::Params;
use crate::remote::{self, RemoteError};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;
use zeroize::Zeroizing;

pub struct SessionCredential<'a> {
    shard: &'a Shard,
    kind: &'static CredentialKind,
    conninfo: Conninfo,
    secret: Option<Secret>,
    longest: CommandDeadline,
}

/// The first version of libpq with `require_auth`.
const REQUIRES_AUTH: i32 = 160_000;

/// Returns the credential with which a shard is reached; for kinds that have none in the keychain, without a secret. A
/// command that has to be run for it is waited for no longer than `limit`.
pub fn of<'a>(
    shard: &'a Shard,
    conninfo: &str,
    limit: Option<Duration>,
) -> Result<SessionCredential<'a>, RemoteError> {
    let longest = CommandDeadline::of(limit);
    let failed = |text: &str| RemoteError::no_credential(&shard.shard_key, text, "See shard_set_endpoint().");
    let kind = kind::by_name(&shard.auth_kind)
        .ok_or_else(|| failed(&format!("auth_kind \"{}\" is not known", shard.auth_kind)))?;
    let conninfo = Conninfo::parse(conninfo).map_err(|error| failed(&error.to_string()))?;
    if let Some(problem) = pipe_in(&conninfo) {
        return Err(failed(&problem));
    }
    let secret = match (kind.has_secret(), &shard.credential_alias) {
        (false, _) => None,
        (true, Some(alias)) => {
            Some(open(shard, kind, alias, longest).map_err(|error| no_credential(shard, &error))?)
        }
        (true, None) => return Err(failed("it has no credential")),
    };
    Ok(SessionCredential { shard, kind, conninfo, secret, longest })
}

/// Returns a pipe among the files that libpq opens without checking their kind: a pipe that no process writes to would
/// block it for ever.
fn pipe_in(conninfo: &Conninfo) -> Option<String> {
    let files = ["sslcert", "sslrootcert", "sslcrl"].map(|keyword| conninfo.get(keyword).zip(Some(keyword)));
    let (path, keyword) = files
        .into_iter()
        .flatten()
        .find(|(path, _)| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()))?;
    Some(format!("{keyword}: \"{path}\" is not a plain file, but a pipe"))
}

fn no_credential(shard: &Shard, failure: &Failure) -> RemoteError {
    let hint = failure.hint.as_deref().unwrap_or_default();
    RemoteError::no_credential(&shard.shard_key, &failure.message, hint)
}

fn open(
    shard: &Shard,
    kind: &'static CredentialKind,
    alias: &str,
    longest: CommandDeadline,
) -> Result<Secret, Failure> {
    let sealed = shard.sealed.as_deref().unwrap_or_default();
    let plain = encrypt::open(&master_key::all_within(longest)?, alias, kind.name, sealed)?;
    Secret::of(kind, &plain)
}

/// Handles a refused session: its credential, or the one that the shard has, may be outdated.
pub fn refused(shard: &Shard, error: RemoteError) -> RemoteError {
    token::forget();
    match &shard.credential_alias {
        Some(alias) if shard.sealed.is_some() => error.of_credential(alias),
        _ => error,
    }
}

impl SessionCredential<'_> {
    /// Adds defaults that the connection string may override: a server that only claims to be the shard gets no
    /// password to read.
    pub fn push_defaults(&self, params: &mut Params) {
        let requires_auth = remote::library_version() >= REQUIRES_AUTH;
        match self.kind.way {
            SecretForm::Password => {
                let has_tls =
                    matches!(self.conninfo.get("sslmode"), Some("require" | "verify-ca" | "verify-full"));
                if has_tls {
                    params.push("channel_binding", "require");
                }
                if requires_auth {
                    params.push("require_auth", "scram-sha-256");
                }
            }
            SecretForm::Peer | SecretForm::Certificate if requires_auth => {
                params.push("require_auth", "none")
            }
            _ => {}
        }
    }

    /// Adds what the credential itself contains.
    pub fn push_secrets(&self, params: &mut Params) -> Result<(), RemoteError> {
        let Some(secret) = &self.secret else { return Ok(()) };
        if let Some(user) = secret.get("username") {
            params.push("user", user);
        }
        match self.kind.way {
            SecretForm::Libpq | SecretForm::Peer => {}
            SecretForm::Password => params.push("password", secret.get("password").unwrap_or_default()),
            SecretForm::Token(_) => params.push("password", &self.token(secret)?),
            SecretForm::Certificate => {
                for (keyword, field) in [("sslcert", "certificate"), ("sslkey", "key")] {
                    let content = secret.get(field).unwrap_or_default();
                    params.push_file(keyword, content).map_err(|error| {
                        let text = format!("no file in memory for its certificate: {error}");
                        RemoteError::connection(&self.shard.shard_key, text)
                    })?;
                }
                if let Some(password) = secret.get("key_password") {
                    params.push("sslpassword", password);
                }
            }
        }
        Ok(())
    }

    fn token(&self, secret: &Secret) -> Result<Zeroizing<String>, RemoteError> {
        let SecretForm::Token(token) = self.kind.way else { return Ok(Zeroizing::default()) };
        let part = |keyword| self.conninfo.get(keyword);
        let account = Account {
            host: part("host").unwrap_or_default(),
            port: part("port").unwrap_or("5432"),
            user: part("user").unwrap_or_default(),
        };
        let sealed = self.shard.sealed.as_deref().unwrap_or_default();
        token::of(token, secret, sealed, &account, self.longest)
            .map_err(|error| no_credential(self.shard, &error))
    }
}
