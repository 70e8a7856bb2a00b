//! What a credential of the keychain adds to a session with a shard, compared with a password file.

use super::Size;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::vault::Vault;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// Sessions that are opened for one measurement.
const AT_ONCE: usize = 20;

/// The shards differ in where the password comes from. Measures the milliseconds of a session and one query.
pub fn sessions(size: Size) -> Result<Vec<Measure>> {
    let vault = Vault::new("scram-sha-256", &[])?;
    vault.set_password("first")?;
    vault.set_credential("b", "password", r#"{"password": "first"}"#)?;
    vault.lead_to(&vault.conninfo(), "b")?;
    let file = vault.directory.join("passwords");
    fs::write(&file, "*:*:*:*:first\n")?;
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let mut master = vault.cluster.superuser()?;
    let conninfo = format!("{} channel_binding=require passfile='{}'", vault.conninfo(), file.display());
    master.execute("SELECT shard_add('by_file', $1)", &[&conninfo])?;
    let mut look = |shard: &str| -> Result<f64> {
        let began = Instant::now();
        for _ in 0..AT_ONCE {
            let query = "SELECT ok FROM shard_check($1) WHERE item = 'connect'";
            if !master.query_one(query, &[&shard])?.get::<_, bool>(0) {
                return Err(format!("{shard} does not connect").into());
            }
        }
        Ok(began.elapsed().as_secs_f64() * 1000.0 / AT_ONCE as f64)
    };
    look("by_file")?;
    look("shard_b")?;
    let mut both =
        Measure::new("session by the keychain, against a password file", "ms", Goal::RatioAtMost(1.1));
    let mut more = Measure::new("what the keychain adds to a session", "ms", Goal::AtMost(1.0));
    for _ in 0..size.pairs(30) {
        let (file, keychain) = (look("by_file")?, look("shard_b")?);
        both.pair(file, keychain);
        more.single(keychain - file);
    }
    Ok(vec![both, more])
}
