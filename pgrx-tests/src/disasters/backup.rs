//! Backups of a running server, and their restore: the disk as it was, or a dump in a new server at the same address.

use crate::cluster::{self, DATABASE, MOVER};
use crate::server::{Server, Stop};
use crate::{Result, env, wait};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub enum Backup {
    /// A copy of the whole disk.
    Disk(PathBuf),
    /// The output of pg_dump for the database.
    Dump(PathBuf),
}

fn run_client(server: &Server, program: &str, arguments: &[&str], path: &Path) -> Result<()> {
    let mut command = Command::new(env::bindir()?.join(program));
    command.args(["-p", "5432", "-U", "postgres", "-h"]).arg(server.socket_dir()).args(arguments).arg(path);
    env::run(&mut command).map(drop)
}

impl Backup {
    pub fn of_disk(server: &Server) -> Result<Backup> {
        let path = server.data().with_file_name("backup");
        run_client(server, "pg_basebackup", &["-X", "stream", "-c", "fast", "-N", "-D"], &path)?;
        Ok(Backup::Disk(path))
    }

    pub fn by_dump(server: &Server) -> Result<Backup> {
        let path = server.data().with_file_name("dump");
        run_client(server, "pg_dump", &["-Fc", "-d", DATABASE, "-f"], &path)?;
        Ok(Backup::Dump(path))
    }

    /// Restores the backup in the place of a server that is stopped and whose disk was put aside.
    pub fn restore(self, server: &mut Server) -> Result<()> {
        match self {
            Backup::Disk(path) => {
                fs::rename(path, server.data())?;
                server.run()
            }
            Backup::Dump(path) => {
                server.make_anew()?;
                // An operator lets nobody in before everything is restored.
                let access = server.data().join("pg_hba.conf");
                let usual = fs::read_to_string(&access)?;
                fs::write(&access, "local all postgres trust\n")?;
                server.run()?;
                cluster::create_database(server)?;
                run_client(server, "pg_restore", &["-d", DATABASE], &path)?;
                fs::write(&access, usual)?;
                server.superuser(DATABASE)?.batch_execute("SELECT pg_reload_conf()")?;
                wait::until("others to be let in", Duration::from_secs(10), || {
                    Ok(server.connect(DATABASE, MOVER).ok().map(|_| ()))
                })
            }
        }
    }
}

/// Stops a server like a crash does, and puts its disk aside.
pub fn put_aside(server: &mut Server) -> Result<()> {
    server.stop(Stop::Kill)?;
    let aside = aside(server);
    // A disk that was put aside before is older.
    if aside.exists() {
        fs::remove_dir_all(&aside)?;
    }
    Ok(fs::rename(server.data(), aside)?)
}

/// Brings back the disk that was put aside.
pub fn bring_back(server: &mut Server) -> Result<()> {
    if server.data().exists() {
        server.stop(Stop::Immediate)?;
        fs::remove_dir_all(server.data())?;
    }
    fs::rename(aside(server), server.data())?;
    server.run()
}

fn aside(server: &Server) -> PathBuf {
    server.data().with_file_name("aside")
}
