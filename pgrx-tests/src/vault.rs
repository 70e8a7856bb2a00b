//! A cluster with one shard that is reached by TLS, with a credential of the keychain.

use crate::cluster::{Cluster, DATABASE, MOVER};
use crate::process::Directory;
use crate::server::{Server, Stop};
use crate::tls::{self, Authority, Issued};
use crate::{Result, fixture, wait};
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The host name in the certificates of shard_b.
pub const HOST: &str = "localhost";

pub struct Vault {
    pub cluster: Cluster,
    pub directory: Directory,
    pub authority: Authority,
    pub address: IpAddr,
}

/// Returns a master key that consists of one letter.
pub fn key(letter: char) -> String {
    letter.to_string().repeat(64)
}

impl Vault {
    /// Makes the cluster, with a file for the master key. shard_b accepts the mover by TLS and a rule of pg_hba.conf.
    pub fn new(rule: &str, config: &[&str]) -> Result<Vault> {
        let directory = Directory::new("vault")?;
        let path = format!("shardmaster.master_key_file = '{}'", directory.join("master key").display());
        let mut lines = vec!["shardmaster.remote_timeout = 3000", path.as_str()];
        lines.extend_from_slice(config);
        let mut cluster = fixture::cluster(&lines);
        let authority = Authority::new(&directory, "authority")?;
        let (address, issued) = (tls::address(), authority.issue(HOST, 1)?);
        tls::require(&mut cluster.servers[1], address, &authority, &issued, rule)?;
        let vault = Vault { cluster, directory, authority, address };
        vault.write_keys(&[&key('a')])?;
        Ok(vault)
    }

    pub fn key_path(&self) -> PathBuf {
        self.directory.join("master key")
    }

    /// Writes the master keys where the master's server reads them.
    pub fn write_keys(&self, keys: &[&str]) -> Result<()> {
        fs::write(self.key_path(), keys.join("\n"))?;
        Ok(fs::set_permissions(self.key_path(), Permissions::from_mode(0o600))?)
    }

    /// Returns a connection string that leads to shard_b by TLS.
    pub fn conninfo(&self) -> String {
        tls::conninfo(HOST, self.address, &self.authority, DATABASE, MOVER)
    }

    pub fn set_credential(&self, alias: &str, kind: &str, secret: &str) -> Result<()> {
        let call = "SELECT shard_credential_set($1, $2, $3::text::jsonb)";
        self.cluster.superuser()?.execute(call, &[&alias, &kind, &secret])?;
        Ok(())
    }

    /// From now on shard_b is reached with this connection string and this credential.
    pub fn lead_to(&self, conninfo: &str, alias: &str) -> Result<()> {
        let call = "SELECT shard_set_endpoint('shard_b', $1, credential_alias => $2)";
        self.cluster.superuser()?.execute(call, &[&conninfo, &alias])?;
        Ok(())
    }

    /// Sets the mover's password on shard_b.
    pub fn set_password(&self, password: &str) -> Result<()> {
        let statement = format!("ALTER ROLE {MOVER} PASSWORD '{password}'");
        Ok(self.cluster.servers[1].superuser(DATABASE)?.batch_execute(&statement)?)
    }

    /// Ends the mover's sessions on shard_b, as a real rotation does.
    pub fn end_sessions(&self) -> Result<()> {
        let statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
        self.cluster.servers[1].superuser(DATABASE)?.execute(statement, &[&MOVER])?;
        Ok(())
    }

    /// Whether a connection to shard_b succeeds, made like a split's, and what `shard_check` says of it.
    pub fn connects(&self) -> Result<(bool, String)> {
        let query =
            "SELECT ok, concat_ws(' ', detail, hint) FROM shard_check('shard_b') WHERE item = 'connect'";
        let row = self.cluster.superuser()?.query_one(query, &[])?;
        Ok((row.get(0), row.get(1)))
    }

    pub fn require_connects(&self) -> Result<()> {
        match self.connects()? {
            (true, _) => Ok(()),
            (false, text) => Err(text.into()),
        }
    }

    /// Returns the error of a connection that must fail.
    pub fn refusal(&self) -> Result<String> {
        match self.connects()? {
            (true, text) => Err(format!("it connects: {text}").into()),
            (false, text) => Ok(text),
        }
    }

    /// Gives shard_b another certificate, which it presents from now on.
    pub fn show(&mut self, issued: &Issued) -> Result<()> {
        let server = &mut self.cluster.servers[1];
        fs::copy(&issued.certificate, server.data().join("server.crt"))?;
        fs::copy(&issued.key, server.data().join("server.key"))?;
        server.restart(Stop::Fast)
    }
}

/// Replaces pg_hba.conf and pg_ident.conf, and waits until the server uses them.
pub fn set_rules(server: &Server, rules: &str, map: &str) -> Result<()> {
    fs::write(server.data().join("pg_hba.conf"), rules)?;
    fs::write(server.data().join("pg_ident.conf"), map)?;
    server.reload()?;
    // A session reads the time of the last reload when it starts. The postmaster has read the files once a
    // new session shows a later time.
    let before: String =
        server.superuser("postgres")?.query_one("SELECT pg_conf_load_time()::text", &[])?.get(0);
    server.reload()?;
    wait::until("the server to read its rules", fixture::LIMIT, || {
        let query = "SELECT pg_conf_load_time()::text <> $1";
        Ok(server.superuser("postgres")?.query_one(query, &[&before])?.get::<_, bool>(0).then_some(()))
    })
}
