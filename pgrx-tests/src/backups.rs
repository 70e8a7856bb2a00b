//! Backups to which a master is set back: its dump, which makes it another master, or its disk, which leaves
//! its identity unchanged.

use crate::cluster::{Cluster, DATABASE};
use crate::disasters::backup::{Backup, put_aside};
use crate::server::Server;
use crate::{Result, env};
use std::path::PathBuf;
use std::process::Command;

/// The output of `pg_dump` for a master's database.
pub struct Dump(PathBuf);

fn program(cluster: &Cluster, name: &str) -> Result<Command> {
    let mut command = Command::new(env::bindir()?.join(name));
    command.args(["-U", "postgres", "-p", "5432", "-h"]).arg(cluster.master.socket_dir());
    Ok(command)
}

impl Dump {
    pub fn of(cluster: &Cluster, name: &str) -> Result<Dump> {
        let path = cluster.master.socket_dir().join(format!("{name}.sql"));
        env::run(program(cluster, "pg_dump")?.arg("-f").arg(&path).args(["-d", DATABASE]))?;
        Ok(Dump(path))
    }

    /// Replaces the existing database by the dump.
    pub fn restore(&self, cluster: &Cluster) -> Result<()> {
        let mut postgres = cluster.master.superuser("postgres")?;
        postgres.batch_execute(&format!("DROP DATABASE {DATABASE} WITH (FORCE)"))?;
        self.restore_as(cluster, DATABASE)
    }

    /// Restores the dump as another database of the same server.
    pub fn restore_as(&self, cluster: &Cluster, database: &str) -> Result<()> {
        let mut postgres = cluster.master.superuser("postgres")?;
        postgres.batch_execute(&format!("CREATE DATABASE {database}"))?;
        let mut psql = program(cluster, "psql")?;
        env::run(psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-f"]).arg(&self.0))?;
        Ok(())
    }
}

/// The disk of the master, as a point-in-time recovery brings it back.
pub struct Disk(Backup);

impl Disk {
    pub fn of(cluster: &Cluster) -> Result<Disk> {
        Backup::of_disk(&cluster.master).map(Disk)
    }

    /// Copies the disk of a shard's server.
    pub fn of_server(server: &Server) -> Result<Disk> {
        Backup::of_disk(server).map(Disk)
    }

    pub fn restore(self, cluster: &mut Cluster) -> Result<()> {
        self.restore_server(&mut cluster.master)
    }

    pub fn restore_server(self, server: &mut Server) -> Result<()> {
        put_aside(server)?;
        self.0.restore(server)
    }
}
