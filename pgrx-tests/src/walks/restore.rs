//! A master that is gone for good, and another one restored from its dump, which is slightly older. The new
//! master takes the shards over.

use super::model::{Phase, SplitView};
use super::outages::Place;
use super::stage::SHARDS;
use super::walk::Walk;
use crate::cluster::DATABASE;
use crate::{Result, env};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long workers may continue between the dump and the end of the old master, in milliseconds.
const SINCE_THE_DUMP: usize = 600;
/// The limit until cutovers that the old master was asked for are decided or aborted.
const SETTLED: Duration = Duration::from_secs(40);

impl Walk {
    pub(super) fn restore_master(&mut self) -> Result<String> {
        // The operator makes sure that every shard can be reached.
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
        let (mut restore, shared) = (program("psql")?, self.writers.shared.clone());
        std::thread::sleep(Duration::from_millis(self.random.below(SINCE_THE_DUMP) as u64));
        // Clients must not ask for routes while there is no master.
        let quiet = shared.quiet();
        self.outages.begins(Place::Master);
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
        self.outages.ends(Place::Master);
        self.excuse_all_failures();
        self.take_up_splits()?;
        self.is_restored = true;
        Ok("another master, restored from a dump, has taken over".into())
    }

    /// Shards may know decisions that the new master does not. It adopts them when splits are resumed, and
    /// until then nobody can say where a key is writable.
    fn take_up_splits(&mut self) -> Result<()> {
        let open: Vec<SplitView> = self.look()?.into_iter().filter(|split| !split.is_over()).collect();
        for SplitView { id, .. } in open {
            self.operate(&format!("SELECT shard_split_resume({id})"))?;
        }
        let deadline = Instant::now() + SETTLED;
        let is_deciding =
            |split: &SplitView| split.phase == Phase::CutoverPending && split.goal == "completed";
        loop {
            let opened = self.opened()?;
            let is_lost = |split: &SplitView| {
                opened.contains(&split.id) && split.phase != Phase::Completed && !split.is_failed
            };
            if !self.look()?.iter().any(|split| is_deciding(split) || !split.is_over() && is_lost(split)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("a cutover does not come to its end on the restored master".into());
            }
            std::thread::sleep(Duration::from_millis(50)); // between two looks
        }
    }

    /// Returns the splits whose targets say that they are open, including those with a decision after the dump.
    fn opened(&self) -> Result<Vec<i64>> {
        let mut all = Vec::new();
        for server in &self.stage.cluster.servers {
            let mut client = server.superuser(DATABASE)?;
            let is_known =
                client.query_one("SELECT to_regclass('shardmaster_agent.side') IS NOT NULL", &[])?;
            if is_known.get(0) {
                let query =
                    "SELECT split_id FROM shardmaster_agent.side WHERE side = 'target' AND state = 'open'";
                all.extend(client.query(query, &[])?.iter().map(|row| row.get::<_, i64>(0)));
            }
        }
        Ok(all)
    }
}
