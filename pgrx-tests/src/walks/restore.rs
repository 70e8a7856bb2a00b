//! A master that is gone for good, and another one restored from its dump, which is a moment
//! older: it takes the shards over.

use super::stage::SHARDS;
use super::walk::Walk;
use super::weather::Place;
use crate::cluster::DATABASE;
use crate::{Result, env};
use std::process::Command;
use std::time::Duration;

/// What workers get done between the dump and the end of the old master.
const SINCE_THE_DUMP: usize = 600;

impl Walk {
    pub(super) fn restore_master(&mut self) -> Result<String> {
        // The operator makes sure that he can reach every shard.
        self.mend_all()?;
        self.look()?;
        let dump = self.stage.cluster.master.socket_dir().join("dump.sql");
        let program = |name: &str| -> Result<Command> {
            let mut command = Command::new(env::bindir()?.join(name));
            command.args(["-U", "postgres", "-p", "5432", "-h"]);
            command.arg(self.stage.cluster.master.socket_dir());
            Ok(command)
        };
        env::run(program("pg_dump")?.arg("-f").arg(&dump).args(["-d", DATABASE]))?;
        let (mut restore, desk) = (program("psql")?, self.writers.desk.clone());
        std::thread::sleep(Duration::from_millis(self.random.below(SINCE_THE_DUMP) as u64));
        // Clients that ask for a route while there is no master are none of this.
        let quiet = desk.quiet();
        self.weather.begins(Place::Master);
        self.excuse_all_failures();
        let mut postgres = self.stage.cluster.master.superuser("postgres")?;
        postgres.batch_execute(&format!("DROP DATABASE {DATABASE} WITH (FORCE)"))?;
        postgres.batch_execute(&format!("CREATE DATABASE {DATABASE}"))?;
        env::run(restore.args(["-q", "-v", "ON_ERROR_STOP=1", "-d", DATABASE, "-f"]).arg(&dump))?;
        drop(quiet);
        for shard in 0..SHARDS {
            let adopt = format!("SELECT shard_adopt('{}')", self.stage.shard_name(shard));
            self.operate(&adopt)?;
        }
        self.weather.ends(Place::Master);
        self.excuse_all_failures();
        self.is_restored = true;
        Ok("another master, restored from a dump, has taken over".into())
    }
}
